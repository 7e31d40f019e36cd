from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import embodichain.lab.sim.assets
from embodichain.agents.rl.run_config import load_run_config
from embodichain.lab.gym.config.files_beside import find_files_beside
from embodichain.lab.gym.envs import EmbodiedEnvCfg
from embodichain.lab.sim.cfg import (
    ArticulationCfg,
    GroupMemberCfg,
    RigidObjectCfg,
    RigidObjectGroupCfg,
    RobotCfg,
    URDFCfg,
    URDFComponentCfg,
)
from embodichain.lab.sim.shapes import CubeCfg, MeshCfg
from embodichain.tools.validate import read_config
from embodichain.utils.configclass import MISSING
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import CART_POLE_ENV, tiny_config


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder ``task`` with files, in the working directory."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "task"
    (folder / "meshes").mkdir(parents=True)
    for name in ("arm.xml", "meshes/cup.obj", "both.xml"):
        (folder / name).touch()
    Path("both.xml").touch()
    return Path("task")


def test_model_files_are_found_beside_the_config_unless_they_are_in_the_working_directory(folder: Path) -> None:
    parts = [URDFComponentCfg("arm", "arm.xml"), URDFComponentCfg("hand", "panda")]
    group = RigidObjectGroupCfg(
        "g", rigid_objects={"a": GroupMemberCfg(shape=MeshCfg(fpath="meshes/cup.obj"))}, folder_path="meshes"
    )
    cfg = EmbodiedEnvCfg(
        robot=RobotCfg("r", fpath="arm.xml", urdf_cfg=URDFCfg(components=parts)),
        articulation=[ArticulationCfg("a", fpath="both.xml")],
        rigid_object=[RigidObjectCfg("o", shape=MeshCfg(fpath="meshes/cup.obj")), RigidObjectCfg("c", shape=CubeCfg())],
        rigid_object_group=[group],
        scene="arm.xml",
    )
    find_files_beside(cfg, folder)
    assert cfg.robot is not None
    assert cfg.robot.urdf_cfg is not None
    assert cfg.robot.fpath == cfg.scene == "task/arm.xml"
    assert [part.urdf_path for part in cfg.robot.urdf_cfg.components] == ["task/arm.xml", "panda"]
    assert cfg.articulation[0].fpath == "both.xml"
    shapes: list[Any] = [cfg.rigid_object[0].shape, cfg.rigid_object_group[0].rigid_objects["a"].shape]
    assert [shape.fpath for shape in shapes] == ["task/meshes/cup.obj"] * 2
    assert cfg.rigid_object_group[0].folder_path == "task/meshes"


@pytest.mark.parametrize("name", ["", "none.xml", "/arm.xml", "a\0b", "x" * 5000, MISSING, None])
def test_other_names_stay_as_they_are(folder: Path, name: Any) -> None:
    cfg = EmbodiedEnvCfg(robot=RobotCfg("r"))
    assert cfg.robot is not None
    cfg.robot.fpath = name
    find_files_beside(cfg, folder)
    assert cfg.robot.fpath is name


def test_robot_beside_its_config_is_trained_and_validated(folder: Path) -> None:
    shutil.copy(Path(embodichain.lab.sim.assets.__file__).with_name("cart_pole.xml"), folder / "pole.xml")
    env = load_json(CART_POLE_ENV)
    env["robot"] = {key: value for key, value in env["robot"].items() if key != "robot_type"} | {"fpath": "pole.xml"}
    (folder / "env.json").write_text(json.dumps(env))
    (folder / "train.json").write_text(json.dumps(tiny_config(trainer__gym_config="env.json")))
    run = load_run_config(folder / "train.json")
    assert run.resolved["gym_config"]["robot"]["fpath"] == "task/pole.xml"
    found: Any = read_config(folder / "env.json", [], [])
    assert found[1].robot.fpath == "task/pole.xml"
