"""From the config file to the typed config, and the message of every mistake in one."""

from __future__ import annotations

import copy
import functools
import subprocess
import sys
import types
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from pydantic import PositiveInt
from torch import Tensor

from embodichain.lab.gym import registry as registration
from embodichain.lab.gym.config.env_config import _extension_problems, config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.actions import DeltaQposTerm
from embodichain.lab.gym.envs.managers.cfg import DEFAULT_MANAGER_MODULES
from embodichain.lab.gym.envs.managers.rewards import success_reward
from embodichain.lab.sim.shapes import CubeCfg
from embodichain.utils import ConfigError
from tests.lab.originals import PUSH_CUBE
from tests.lab.scenes import CART


def errors(env: Any = None, **top: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        config_to_cfg({"robot": CART, "env": {} if env is None else env} | top)
    return str(caught.value).splitlines()


def own_term(env: Any, **params: Any) -> None:
    """A user's own functor."""


def own_event(env: Any, env_ids: Any = None, force: float = 0.0) -> None:
    """A user's own event."""


def test_original_config_becomes_typed_values() -> None:
    cfg = config_to_cfg(PUSH_CUBE)
    assert cfg.max_episode_steps == 80
    assert cfg.sim_steps_per_control == 4
    assert cfg.robot is not None
    assert cfg.robot.robot_type == "URRobot"
    assert cfg.robot.solver_cfg["arm"].tcp[2] == (0.0, 0.0, 1.0, 0.16)
    assert cfg.rigid_object[0].shape == CubeCfg(size=(0.08, 0.08, 0.08))
    assert cfg.rigid_object[0].attrs.dynamic_friction == 0.8
    assert cfg.actions["delta_qpos"].func is DeltaQposTerm
    assert cfg.rewards["success"].func is success_reward
    assert cfg.rewards["success"].weight == 10.0
    assert cfg.observations["joints"].mode == "modify"
    assert cfg.extensions == {"success_threshold": 0.05}
    assert cfg.validate() == []  # type: ignore[attr-defined]


def test_reading_a_config_leaves_the_users_dictionary_alone() -> None:
    before = repr(PUSH_CUBE)
    config_to_cfg(PUSH_CUBE)
    assert repr(PUSH_CUBE) == before


def test_users_own_functor_is_found_in_allowed_or_given_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    dotted = {"robot": CART, "env": {"events": {"own": {"func": f"{__name__}.own_term"}}}}
    ways: list[dict[str, Any]] = [{"allowed_imports": [__name__]}, {"manager_modules": [__name__]}]
    for given in ways:
        assert config_to_cfg(dotted, **given).events["own"].func is own_term
    data = {"robot": CART, "env": {"events": {"own": {"func": "own_term"}}}}
    assert config_to_cfg(data, manager_modules=[__name__]).events["own"].func is own_term
    monkeypatch.setenv("EMBODICHAIN_ALLOW_IMPORT", __name__)
    assert config_to_cfg(dotted).events["own"].func is own_term


@pytest.mark.parametrize("name", ["Path", f"{DEFAULT_MANAGER_MODULES[-2]}.Renderer", "Functor", "np"])
def test_what_our_modules_of_terms_import_themselves_is_no_term(name: str) -> None:
    (line,) = errors({"events": {"own": {"func": name}}})
    assert line.startswith(f"env.events.own.func: unknown function '{name}'")


def test_what_a_users_module_imports_itself_is_no_term_unless_it_offers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("users_terms_of_this_test")
    vars(module).update(run=subprocess.run, near=functools.partial(own_term), again=own_term)
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def find(name: str) -> Any:
        data = {"robot": CART, "env": {"events": {"own": {"func": f"{module.__name__}.{name}"}}}}
        return config_to_cfg(data, allowed_imports=[module.__name__]).events["own"].func

    assert find("near") is vars(module)["near"]
    for name in ("run", "again"):
        with pytest.raises(ConfigError, match="unknown function"):
            find(name)
    # A slip in a name of one's own is answered with what that module has, and not with all the shipped ones.
    vars(module)["my_height_reward"] = types.FunctionType((lambda env: env).__code__, {"__name__": module.__name__})
    with pytest.raises(ConfigError) as caught:
        find("my_heigth_reward")
    assert "Did you mean 'my_height_reward'? The module has: my_height_reward" in str(caught.value)
    monkeypatch.setattr(module, "__all__", ["again"], raising=False)
    assert find("again") is own_term


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("step", "is taken: the environment has a method or property of that name"),
        ("__class__", "must be letters, digits and '_', and not begin with '_' or a digit"),
        ("a b", "must be letters"),
    ],
)
def test_extension_does_not_take_the_place_of_what_an_environment_does(name: str, problem: str) -> None:
    move = {"func": "DeltaQposTerm", "params": {"scale": 0.1}}
    data = {"id": "CartPoleRL", "robot": CART, "env": {"actions": {"a": move}, "extensions": {name: 5}}}
    with pytest.raises(ConfigError, match=rf"^env\.extensions\.{name}: {problem}"):
        config_to_cfg(data)


class Typed(EmbodiedEnv):
    """Has attributes of many types."""

    reach: float = 0.1
    steps: PositiveInt = 5
    sides: tuple[float, float] = (0.0, 1.0)
    names: Sequence[str] = ()
    kind: Literal["near", "far"] = "near"
    limit: float | None = None
    goal: Tensor
    only_checked: NotThere  # type: ignore[name-defined]  # noqa: F821 (as a name for type checkers alone)
    free = 3


def test_extension_of_another_type_than_the_attribute_is_refused() -> None:
    lines = _extension_problems({"steps": 0, "names": ["a", 3]}, Typed)
    assert lines == [
        "env.extensions.steps: Input should be greater than 0, got 0",
        "env.extensions.names[1]: Input should be a valid string, got 3",
    ]


def test_extensions_of_the_attributes_types_pass_and_those_of_none_of_jsons(caplog: pytest.LogCaptureFixture) -> None:
    good = {"reach": 1, "steps": 2, "sides": [0, 0.5], "names": ["a"], "kind": "far", "limit": None}
    unknown = {"goal": [1.0], "only_checked": "x", "free": "y", "more": {"a": [1]}}
    assert not _extension_problems(good | unknown, Typed)
    assert not _extension_problems(good | unknown, None)
    assert not caplog.messages


def test_what_a_manager_gives_may_have_a_default() -> None:
    data = {"robot": CART, "env": {"events": {"own": {"func": f"{__name__}.own_event", "params": {"force": 1}}}}}
    assert config_to_cfg(data, allowed_imports=[__name__]).events["own"].func is own_event


def test_unknown_key_of_an_entity_has_its_whole_path_and_the_nearest() -> None:
    (line,) = errors(rigid_object=[{"uid": "a", "shape": {"shape_type": "Cube"}, "atrs": {}}])
    assert line.startswith("rigid_object[0].atrs: unknown key. Did you mean 'attrs'?")
    (line,) = errors(rigid_object=[{"uid": "a", "shape": {"shape_type": "Cube", "sizes": [1, 1, 1]}}])
    assert line == "rigid_object[0].shape.sizes: unknown key. Did you mean 'size'? Known: shape_type, size"


def test_unknown_shape_lists_what_there_is() -> None:
    (line,) = errors(rigid_object=[{"uid": "a", "shape": {"shape_type": "Torus"}}])
    assert line == (
        "rigid_object[0].shape.shape_type: unknown shape_type 'Torus'. Known: Capsule, Cube, Cylinder, Mesh, Plane, "
        "Sphere"
    )


def test_unknown_sensor_type_lists_what_there_is() -> None:
    assert errors(sensor=[{"uid": "a", "sensor_type": "Cammera"}]) == [
        "sensor[0].sensor_type: unknown sensor_type 'Cammera'. Did you mean 'Camera'? Known: Camera, Contact, "
        "StereoCamera"
    ]
    assert errors(sensor=[3]) == ["sensor[0]: must be an object with 'sensor_type', got 3"]


def test_block_that_is_no_object_is_refused() -> None:
    assert errors("x") == ["env: must be an object, got 'x'"]


def test_all_errors_of_a_file_are_reported_together() -> None:
    lines = errors(
        {"rewards": {"good": {"func": "nothing_like_it"}}, "evnts": {}, "sim_steps_per_control": 0},
        num_envs="x",
        rigid_object=[{"shape": {"shape_type": "Cube"}, "colour": 1}],
        robots={},
    )
    assert {line.split(":")[0] for line in lines} == {
        "robots",
        "env.rewards.good.func",
        "env.evnts",
        "env.sim_steps_per_control",
        "num_envs",
        "rigid_object[0].colour",
        "rigid_object[0].uid",
    }
    assert len(lines) == 7


def test_registered_class_that_is_no_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "_REGISTRY", dict(registration._REGISTRY))

    @registration.register_env("PlainRL")
    class Plain:
        """A task whose author forgot the base."""

    with pytest.raises(ConfigError) as caught:
        config_to_cfg({"id": "PlainRL", "robot": CART, "env": {"actions": {"move": {"func": "DeltaQposTerm"}}}})
    assert str(caught.value).endswith("Plain of 'PlainRL' must be a subclass of EmbodiedEnv")


def with_observation(name: str) -> dict[str, Any]:
    data = copy.deepcopy(PUSH_CUBE)
    data["env"]["observations"]["mine"] = {"func": "get_robot_eef_pose", "mode": "add", "name": name}
    return data


def test_observation_that_replaces_another_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    config_to_cfg(with_observation("robot/qpos"))
    line = "env.observations.mine: there is an entry 'robot/qpos' already, which this one replaces; to change it, write"
    assert line in capsys.readouterr().err


@pytest.mark.parametrize(("name", "taken"), [("robot", "robot/ee_pos"), ("robot/qpos/first", "robot/qpos")])
def test_observation_is_not_inside_another(name: str, taken: str) -> None:
    line = f"env.observations.mine: there is an entry '{taken}' already: choose another name, \"name\": ..."
    with pytest.raises(ConfigError) as caught:
        config_to_cfg(with_observation(name))
    assert str(caught.value).splitlines() == [line]
