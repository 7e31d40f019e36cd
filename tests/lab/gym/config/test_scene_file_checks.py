"""What a config may say beside a scene's file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embodichain.ext.upstream.inline_env import read_inline_env
from embodichain.lab.gym import registry as registration
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import SceneEnv
from embodichain.lab.gym.registry import register_env
from embodichain.utils import ConfigError
from tests.lab.scene_files import rail_file
from tests.lab.scenes import BOX, CART

BESIDE = "not beside 'scene', whose file describes everything but cameras"


def error_of(data: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as error:
        config_to_cfg(data)
    return str(error.value)


@pytest.mark.parametrize(
    ("extra", "line"),
    [
        ({"robot": CART}, f"robot: {BESIDE}"),
        ({"rigid_object": [BOX]}, f"rigid_object: {BESIDE}"),
        ({"light": {"direct": [{"uid": "sun"}]}}, f"light: {BESIDE}"),
        ({"env": {"sim_cfg": {"gravity": [0, 0, -1]}}}, f"env.sim_cfg.gravity: {BESIDE}"),
        ({"env": {"sim_cfg": {"physics_dt": 0.002}}}, f"env.sim_cfg.physics_dt: {BESIDE}"),
        ({"env": {"sim_cfg": {"solver": {"iterations": 3}}}}, f"env.sim_cfg.solver: {BESIDE}"),
        ({"env": {"control_parts": ["arm"]}}, f"env.control_parts: {BESIDE}"),
        ({"sensor": [{"uid": "feet", "sensor_type": "Contact", "link_names": ["foot"]}]}, f"sensor[0]: {BESIDE}"),
        ({"scene": "gone.xml"}, f"scene: no such file: {Path('gone.xml').absolute()}"),
    ],
)
def test_what_the_file_describes_cannot_stand_beside_it(tmp_path: Path, extra: dict[str, Any], line: str) -> None:
    assert error_of({"id": "SceneRL", "scene": rail_file(tmp_path)} | extra) == line


def test_a_scenes_task_needs_its_file() -> None:
    assert error_of({"id": "SceneRL"}) == "scene: required, but missing: the MJCF file of the whole scene"


def test_a_task_whose_scene_is_assembled_takes_no_file(tmp_path: Path) -> None:
    data = {"id": "CartPoleRL", "robot": CART, "scene": rail_file(tmp_path)}
    data["env"] = {"actions": {"move": {"func": "DeltaQposTerm"}}}

    assert error_of(data) == (
        "scene: only for tasks whose scene is a file, such as 'SceneRL'; CartPoleEnv's is assembled"
    )


@pytest.fixture
def own_task() -> Iterator[None]:
    env = {**SceneEnv.config_defaults["env"], "sim_steps_per_control": 5}
    defaults = {**SceneEnv.config_defaults, "scene": "gymnasium/hopper.xml", "env": env}
    register_env("OwnHopperRL", override=True)(type("OwnHopper", (SceneEnv,), {"config_defaults": defaults}))
    yield
    del registration._REGISTRY["OwnHopperRL"]


@pytest.mark.usefixtures("own_task")
def test_a_task_has_defaults_that_its_config_can_replace() -> None:
    default = config_to_cfg({"id": "OwnHopperRL"})
    changed = config_to_cfg({"id": "OwnHopperRL", "num_envs": 3, "env": {"sim_steps_per_control": 2}})

    assert (default.scene, default.sim_steps_per_control) == ("gymnasium/hopper.xml", 5)
    assert (changed.scene, changed.sim_steps_per_control) == ("gymnasium/hopper.xml", 2)
    assert list(changed.actions) == ["control"]


@pytest.mark.usefixtures("own_task")
def test_the_older_layout_has_a_tasks_defaults_too() -> None:
    found = read_inline_env({"id": "OwnHopperRL", "cfg": {"num_envs": 3}})

    assert found.problems == []
    assert config_to_cfg(found.data).sim_steps_per_control == 5
