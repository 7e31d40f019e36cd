"""What terms may name, as far as a config tells, and what is left to the built scene."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from embodichain.lab.gym.config.env_config import config_to_cfg, parse_env
from embodichain.lab.gym.config.scene_checks import names_in_config, scene_problems
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.tasks.rl import PushCubeEnv, ReachEnv
from embodichain.lab.sim.cfg import RigidObjectCfg, RobotCfg
from embodichain.lab.sim.shapes import CubeCfg
from embodichain.utils import ConfigError
from tests.lab.originals import CART_POLE, PUSH_CUBE
from tests.lab.scenes import CART

LOOK = {"func": "get_rigid_object_pose", "params": {"entity_cfg": {"uid": "lid"}}}
DOUBLE = {"func": f"{__name__}.double", "mode": "modify", "name": "pole/lean"}
ENV: dict[str, Any] = {"robot": CART, "env": {"actions": {"move": {"func": "DeltaQposTerm"}}}}


def double(env: EmbodiedEnv, data: Tensor) -> Tensor:
    return 2 * data


class WithLid(EmbodiedEnv):
    """Adds a thing that is not in the config."""

    def _prepare_scene(self) -> None:
        super()._prepare_scene()
        self.sim.add_rigid_object(RigidObjectCfg("lid", shape=CubeCfg()))


class WithDeclaredLid(WithLid):
    added_uids = ("lid",)


class WithLean(EmbodiedEnv):
    """Observes an entry of its own."""

    def _extend_obs(self, obs: dict[str, Tensor]) -> dict[str, Tensor]:
        obs["pole/lean"] = self.robot.get_qpos("hand")
        return super()._extend_obs(obs)


def with_terms(**observations: Any) -> dict[str, Any]:
    return ENV | {"env": ENV["env"] | {"observations": observations}}


def typed(data: dict[str, Any]) -> EmbodiedEnvCfg:
    return parse_env(data, env_class=EmbodiedEnv).cfg


def test_names_are_those_of_the_config_and_of_what_the_task_declares() -> None:
    names = names_in_config(typed(PUSH_CUBE), PushCubeEnv)
    assert names.uids == frozenset({"Manipulator", "cube", "goal"})
    assert names.parts == {"Manipulator": frozenset({"arm", "hand"})}
    assert names.entries == frozenset({"robot/qpos", "robot/qvel", "robot/qf"})
    names = names_in_config(typed(CART_POLE), EmbodiedEnv)
    assert names.uids == frozenset({"Cart"})
    assert names.parts == {"Cart": frozenset({"arm", "hand"})}
    one = EmbodiedEnvCfg(robot=RobotCfg("a", fpath="ur10"))
    assert names_in_config(one, EmbodiedEnv).parts == {"a": frozenset({"arm"})}


def test_base_entries_are_those_that_are_observed() -> None:
    env = EmbodiedEnv(config_to_cfg(ENV))
    assert tuple(env._base_obs()) == env.base_entries


def test_task_says_which_entries_and_things_it_adds() -> None:
    names = names_in_config(typed(PUSH_CUBE), ReachEnv)
    assert names.entries == frozenset({"robot/qpos", "robot/qvel", "robot/qf", "task/pose_error"})
    assert names.uids == frozenset({"Manipulator", "cube", "goal_x", "goal_y", "goal_z"})
    assert names_in_config(typed(PUSH_CUBE), WithLean).entries is None


def test_wrong_robot_of_a_term_is_one_error() -> None:
    term = {"func": "joint_velocity_penalty", "params": {"robot_uid": "Car", "part_name": "arm"}}
    env = CART_POLE["env"] | {"rewards": {"calm": term}}
    assert parse_env(CART_POLE | {"env": env}, env_class=EmbodiedEnv).problems == [
        "env.rewards.calm.params.robot_uid: no robot 'Car' in the scene. Did you mean 'Cart'? There are: Cart"
    ]


def test_parts_of_a_robot_are_its_components() -> None:
    components = [{"component_type": kind, "urdf_path": "ur3"} for kind in ("left_arm", "right_arm")]
    robot = {"uid": "a", "urdf_cfg": {"components": components}}
    assert names_in_config(typed({"robot": robot}), EmbodiedEnv).parts == {"a": frozenset({"left_arm", "right_arm"})}


def test_names_of_an_unknown_class_are_not_known() -> None:
    names = names_in_config(typed(PUSH_CUBE), None)
    assert (names.uids, names.parts, names.entries) == (None, None, None)
    config_to_cfg(with_terms(lid=LOOK))  # no id: whose class it will be is not known


def test_what_a_task_adds_in_code_is_checked_when_it_is_built() -> None:
    with pytest.raises(ConfigError, match="no rigid object 'lid' in the scene"):
        config_to_cfg(with_terms(lid=LOOK), env_class=EmbodiedEnv)
    WithLid(config_to_cfg(with_terms(lid=LOOK), env_class=WithLid)).close()
    wrong = with_terms(lid={"func": "get_rigid_object_pose", "params": {"entity_cfg": {"uid": "lit"}}})
    cfg = config_to_cfg(wrong, env_class=WithLid)
    with pytest.raises(
        ConfigError, match=r"env\.observations\.lid\.params\.entity_cfg\.uid: no rigid object 'lit' in the scene"
    ):
        WithLid(cfg)


def test_what_a_task_declares_to_add_is_checked_when_the_config_is_read() -> None:
    config_to_cfg(with_terms(lid=LOOK), env_class=WithDeclaredLid)
    wrong = with_terms(lid={"func": "get_rigid_object_pose", "params": {"entity_cfg": {"uid": "lit"}}})
    with pytest.raises(ConfigError, match=r"no rigid object 'lit' in the scene\. Did you mean 'lid'\?"):
        config_to_cfg(wrong, env_class=WithDeclaredLid)


def test_entry_that_a_task_adds_may_be_modified() -> None:
    with pytest.raises(ConfigError, match=r"env\.observations\.twice\.name: unknown entry 'pole/lean'"):
        config_to_cfg(with_terms(twice=DOUBLE), allowed_imports=[__name__], env_class=EmbodiedEnv)
    config_to_cfg(with_terms(twice=DOUBLE), allowed_imports=[__name__], env_class=WithLean)


def test_entry_of_an_earlier_term_may_be_modified_even_where_that_term_is_wrong() -> None:
    add = {"func": "get_robot_eef_pose", "name": "pole/lean"}
    config_to_cfg(with_terms(first=add, twice=DOUBLE), allowed_imports=[__name__], env_class=EmbodiedEnv)
    data = with_terms(first=add | {"nmae": "x"}, twice=DOUBLE)
    with pytest.raises(ConfigError) as caught:
        config_to_cfg(data, allowed_imports=[__name__], env_class=EmbodiedEnv)
    assert str(caught.value).startswith("env.observations.first.nmae: unknown key.")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("scene", "problem"),
    [
        ({"robot": CART | {"uid": "a/b"}}, "robot.uid: uid 'a/b' cannot be used"),
        ({"robot": {"uid": "a", "robot_type": "UR"}}, "robot.robot_type: unknown robot_type 'UR'"),
        ({"robot": {"uid": "a"}}, "robot: needs an arm"),
        ({"robot": {"uid": "a", "fpath": "ur11"}}, "robot.fpath: asset 'ur11' is neither"),
        (
            {"robot": CART, "rigid_object": [{"uid": "p", "shape": {"shape_type": "Plane"}}]},
            "rigid_object[0].body_type: a Plane must have body_type 'static', got 'dynamic'",
        ),
    ],
)
def test_things_are_checked_before_they_are_built(scene: dict[str, Any], problem: str) -> None:
    (line,) = scene_problems(typed(scene))
    assert line.startswith(problem)


@pytest.mark.parametrize(
    ("scene", "paths"),
    [
        ({"robot": 3}, ["robot"]),
        ({"rigid_object": {}}, ["rigid_object"]),
        ({"rigid_object": [3]}, ["rigid_object[0]"]),
        ({"sensor": 3}, ["sensor"]),
        ({"sensor": [{"uid": "cam", "near": 2, "far": 1}]}, ["sensor[0]"]),
    ],
)
def test_what_is_malformed_in_a_scene_is_reported_once_and_names_are_not_known_then(
    scene: dict[str, Any], paths: list[str]
) -> None:
    parsed = parse_env(with_terms(lid=LOOK) | scene, env_class=EmbodiedEnv)
    assert [line.partition(": ")[0] for line in parsed.problems] == paths


@pytest.mark.parametrize("robot", [{"urdf_cfg": [1]}, {"fpath": 3}, {"robot_type": 3}])
def test_robot_with_a_malformed_model_is_not_said_to_need_an_arm(robot: dict[str, Any]) -> None:
    parsed = parse_env(ENV | {"robot": {"uid": "a"} | robot}, env_class=EmbodiedEnv)
    assert [line.partition(": ")[0] for line in parsed.problems] == [f"robot.{next(iter(robot))}"]


def test_a_mistake_in_a_thing_hides_none_in_the_terms() -> None:
    cup = {"uid": "cup", "shape": {"shape_type": "Mesh", "fpath": "cup.obj"}, "colour": 1, "attrs": {"mass": -1}}
    env = ENV["env"] | {"observations": {"lid": LOOK}, "control_parts": ["leg"]}
    parsed = parse_env({"robot": CART, "rigid_object": [3, cup], "env": env}, env_class=EmbodiedEnv)
    paths = ["rigid_object[0]", "rigid_object[1].colour", "rigid_object[1].attrs.mass", "rigid_object[1].shape.fpath"]
    assert sorted(line.partition(": ")[0] for line in parsed.problems) == sorted(paths)
    parsed = parse_env({"robot": CART, "rigid_object": [cup], "env": env}, env_class=EmbodiedEnv)
    named = ["env.observations.lid.params.entity_cfg.uid", "env.control_parts"]
    paths = [path.replace("[1]", "[0]") for path in paths[1:]] + named
    assert sorted(line.partition(": ")[0] for line in parsed.problems) == sorted(paths)


@pytest.mark.parametrize(
    ("func", "params", "problem"),
    [
        (
            "randomize_rigid_object_mass",
            {"entity_cfg": {"uid": "Manipulator"}, "mass_range": [1, 2]},
            "entity_cfg.uid: no rigid object 'Manipulator' in the scene. There are: cube, goal",
        ),
        (
            "randomize_rigid_objects_scale",
            {"entity_cfgs": [{"uid": "Manipulator"}], "scale_factor_range": [[1.0], [2.0]]},
            "entity_cfgs[0].uid: no rigid object 'Manipulator' in the scene. There are: cube, goal",
        ),
        (
            "randomize_rigid_object_mass",
            {"entity_cfg": {"uid": "default_plane"}, "mass_range": [1, 2]},
            "entity_cfg.uid: no rigid object 'default_plane' in the scene. There are: cube, goal",
        ),
        (
            "randomize_link_mass",
            {"entity_cfg": {"uid": "cube"}, "mass_range": [0, 1]},
            "entity_cfg.uid: no articulation or robot 'cube' in the scene. There are: Manipulator, goal",
        ),
        (
            "randomize_light",
            {"entity_cfg": {"uid": "cube"}},
            "entity_cfg.uid: no light 'cube' in the scene. There are: goal",
        ),
    ],
)
def test_term_is_refused_an_entity_of_another_kind(func: str, params: dict[str, Any], problem: str) -> None:
    # What the class adds itself, the goal, may be of any kind.
    event = {"func": func, "mode": "reset", "params": params}
    data = PUSH_CUBE | {"env": PUSH_CUBE["env"] | {"events": PUSH_CUBE["env"]["events"] | {"new": event}}}
    assert parse_env(data, env_class=PushCubeEnv).problems == [f"env.events.new.params.{problem}"]


def test_task_refuses_a_config_without_the_entities_that_it_needs() -> None:
    problems = parse_env(PUSH_CUBE | {"rigid_object": []}, env_class=PushCubeEnv).problems
    assert "PushCubeEnv needs a rigid object 'cube'" in problems
