"""Whole configs in the layouts of EmbodiChain 0.2.0 to 0.3.2 are the trainings that they are there."""

import copy
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from embodichain.agents.rl.run_config import RunConfig, load_run_config, with_scene
from embodichain.commands.validate import read_config
from tests.lab.layouts import ENVS, Json, env_0_3_0, env_0_3_1, train_0_2_0, train_0_2_4, train_0_3
from tests.lab.originals import CART_POLE_TRAIN_GRPO, PUSH_CUBE_TRAIN

Layout = Callable[[Json], Json]
LAYOUTS: dict[str, tuple[Layout, Layout]] = {
    "0.1.3": (copy.deepcopy, copy.deepcopy),
    "0.2.0": (train_0_2_0, copy.deepcopy),
    "0.2.4": (train_0_2_4, copy.deepcopy),
    "0.3.0": (train_0_3, env_0_3_0),
}
TRAININGS = {"PushCubeRL": PUSH_CUBE_TRAIN, "CartPoleRL": CART_POLE_TRAIN_GRPO}


def load(folder: Path, train: Json, env: Json, suffix: str = "json") -> RunConfig:
    """Write both files and load them as a user does."""
    write = json.dumps if suffix == "json" else yaml.safe_dump
    train = copy.deepcopy(train)
    train["trainer"]["gym_config"] = f"gym_config.{suffix}"
    (folder / f"gym_config.{suffix}").write_text(write(env), encoding="utf-8")
    (folder / f"train_config.{suffix}").write_text(write(train), encoding="utf-8")
    return load_run_config(folder / f"train_config.{suffix}", ["trainer.device=cpu"])


@pytest.mark.e2e
@pytest.mark.parametrize(("task", "suffix"), [("PushCubeRL", "json"), ("CartPoleRL", "yaml")])
@pytest.mark.parametrize("version", LAYOUTS)
def test_every_layout_is_the_same_run(version: str, task: str, suffix: str, tmp_path: Path) -> None:
    as_train, as_env = LAYOUTS[version]
    run = load(tmp_path, as_train(TRAININGS[task]), as_env(ENVS[task]), suffix)
    same = load(tmp_path, TRAININGS[task], ENVS[task], suffix)
    assert run.resolved == same.resolved
    assert run == same


@pytest.mark.ext
def test_renamed_action_term_moves_the_part_that_it_names(tmp_path: Path) -> None:
    run = load(tmp_path, PUSH_CUBE_TRAIN, env_0_3_1(ENVS["PushCubeRL"]))
    same = load(tmp_path, PUSH_CUBE_TRAIN, ENVS["PushCubeRL"])
    action = run.resolved["gym_config"]["env"]["actions"]["delta_qpos"]
    assert action["func"] == "DeltaQposTerm"
    assert action["params"] == {"scale": 0.1, "part_name": "arm"}
    del action["params"]["part_name"]
    assert run.resolved == same.resolved


@pytest.mark.ext
def test_moved_and_unused_keys_are_a_warning_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load(tmp_path, train_0_2_4(CART_POLE_TRAIN_GRPO), env_0_3_0(ENVS["CartPoleRL"]))
    assert capsys.readouterr().err.splitlines() == [
        "[WARNING] training config in another layout (deprecated), read as: policy.initial_log_std -> "
        "policy.init_log_std, algorithm.cfg.optimizer.learning_rate -> algorithm.cfg.learning_rate",
        "[WARNING] training config: without counterpart, not used: trainer.renderer 'fast-rt' (trainer.enable_rt "
        "chooses ray tracing), trainer.eval_seed 1042 (the episodes of evaluations follow from trainer.seed)",
        "[WARNING] environment config in another layout (deprecated), read as: physics_config.physics_dt -> "
        "env.sim_cfg.physics_dt, robot.joint_drive_props -> robot.drive_pros, robot.root_props.fixed_base -> "
        "robot.fix_base",
        "[WARNING] environment config: without counterpart, not used: physics 'default' (the physics is MuJoCo's)",
    ]


@pytest.mark.ext
def test_override_by_our_path_works_on_their_layout(tmp_path: Path) -> None:
    load(tmp_path, train_0_2_4(CART_POLE_TRAIN_GRPO), env_0_3_0(ENVS["CartPoleRL"]))
    run = load_run_config(
        tmp_path / "train_config.json",
        ["trainer.device=cpu", "algorithm.cfg.learning_rate=0.5", "robot.drive_pros.friction=0.25"],
    )
    assert run.algorithm.learning_rate == 0.5
    assert run.resolved["gym_config"]["robot"]["drive_pros"]["friction"] == 0.25


@pytest.mark.ext
def test_override_of_an_environment_works_on_their_layout(tmp_path: Path) -> None:
    path = tmp_path / "env.json"
    path.write_text(json.dumps(env_0_3_0(ENVS["CartPoleRL"])), encoding="utf-8")
    found = read_config(path, ["robot.drive_pros.friction=0.25"], [])
    assert not isinstance(found, RunConfig)
    robot = with_scene(found[1], "test").robot
    assert robot is not None
    assert robot.drive_pros.friction == 0.25
