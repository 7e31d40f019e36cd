"""The scene of a config: its mistakes, what terms may name in it, and what is left to the built scene."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import embodichain.lab.sim.assets
from embodichain.agents.rl.run_config import load_run_config
from embodichain.commands.validate import read_config
from embodichain.lab.gym.config.env_config import config_to_cfg, parse_env
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl import PushCubeEnv, ReachEnv
from embodichain.lab.sim.cfg import RigidObjectCfg, RobotCfg
from embodichain.lab.sim.shapes import CubeCfg
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import CART_POLE_ENV, tiny_config
from tests.lab.legs import FEET, GO2, SENSORS, legs_data
from tests.lab.originals import PUSH_CUBE
from tests.lab.scene_files import rail_file
from tests.lab.scenes import BOX, CART

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


def test_names_are_those_of_the_config_and_of_the_task() -> None:
    names = parse_env(PUSH_CUBE, env_class=PushCubeEnv).names
    assert names.uids[""] == {"Manipulator", "cube", "goal"}
    assert {uid: set(parts) for uid, parts in names.parts.items()} == {"Manipulator": {"arm", "hand"}}
    assert names.entries == frozenset({"robot/qpos", "robot/qvel", "robot/qf"})
    names = parse_env(PUSH_CUBE, env_class=ReachEnv).names
    assert names.entries == frozenset({"robot/qpos", "robot/qvel", "robot/qf", "task/pose_error"})
    assert names.uids[""] == {"Manipulator", "cube", "goal_x", "goal_y", "goal_z"}
    assert parse_env(PUSH_CUBE, env_class=WithLean).names.entries is None
    assert not parse_env(PUSH_CUBE | {"id": "None"}).names.uids  # an unknown class may add what it likes


def test_base_entries_are_those_that_are_observed() -> None:
    env = EmbodiedEnv(config_to_cfg(ENV))
    assert tuple(env._base_obs()) == env.base_entries


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
        (
            {"robot": CART, "rigid_object": [{"uid": "p", "shape": {"shape_type": "Plane"}}]},
            "rigid_object[0].body_type: a Plane must have body_type 'static', got 'dynamic'",
        ),
    ],
)
def test_things_are_checked_before_they_are_built(scene: dict[str, Any], problem: str) -> None:
    (line,) = parse_env(ENV | scene, env_class=EmbodiedEnv).problems
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
    cup: dict[str, Any] = {
        "uid": "cup",
        "shape": {"shape_type": "Mesh", "fpath": "cup.obj"},
        "colour": 1,
        "attrs": {"mass": -1},
    }
    env = ENV["env"] | {"observations": {"lid": LOOK}, "control_parts": ["leg"]}
    parsed = parse_env({"robot": CART, "rigid_object": [3, cup], "env": env}, env_class=EmbodiedEnv)
    paths = ["rigid_object[0]", "rigid_object[1].colour", "rigid_object[1].attrs.mass", "env.control_parts"]
    assert sorted(line.partition(": ")[0] for line in parsed.problems) == sorted(paths)
    del cup["colour"], cup["attrs"]
    parsed = parse_env({"robot": CART, "rigid_object": [cup], "env": env}, env_class=EmbodiedEnv)
    paths = ["rigid_object[0].shape.fpath", "env.observations.lid.params.entity_cfg.uid", "env.control_parts"]
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


JOINTS = "FL_hip_joint, FL_thigh_joint, FL_calf_joint, FR_hip_joint, "  # the first of 12
UID = {"uid": "go2"}
NO_LINK = UID | {"link_names": ["bas"]}


def message_of(data: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as error:
        config_to_cfg(data)
    return str(error.value)


@pytest.mark.parametrize(
    ("block", "term", "message"),
    [
        (
            "rewards",
            {"func": "feet_gait", "params": {"sensor": "feet", "offsets": [0.0, 0.5]}},
            f"offsets: has 2 values for 4 links of sensor 'feet': {', '.join(FEET)}",
        ),
        ("rewards", {"func": "posture", "params": {"std": {"hip": 0.2}}}, "std: unknown joint 'hip'. Known: FL_calf_"),
        (
            "events",
            {"func": "randomize_link_mass", "params": {"entity_cfg": NO_LINK, "mass_range": [0, 1]}},
            "entity_cfg.link_names: unknown link 'bas'. Did you mean 'base'? Known: FL_calf, ",
        ),
        (
            "events",
            {"func": "randomize_joint_drive", "params": {"entity_cfg": UID | {"joint_names": "knee"}}},
            "entity_cfg.joint_names: unknown joint 'knee'. Known: FL_calf_joint, ",
        ),
        (
            "events",
            {"func": "randomize_robot_qpos", "params": {"qpos_range": [[0, 0], [1, 1]], "joint_ids": [0, 1, 2]}},
            "qpos_range: has 2 values for 3 joints: FL_hip_joint, FL_thigh_joint, FL_calf_joint",
        ),
        (
            "events",
            {"func": "randomize_robot_qpos", "params": {"qpos_range": [[0], [1]], "joint_ids": [12]}},
            "joint_ids: no joint 12. There are: 0 (FL_hip_joint), 1 (FL_thigh_joint), ",
        ),
        (
            "events",
            {
                "func": "randomize_joint_velocity",
                "params": {"entity_cfg": UID | {"joint_names": [".*_hip_joint"]}, "qvel_range": [[0] * 3, [1] * 3]},
            },
            "qvel_range: has 3 values for 4 joints: FL_hip_joint, FR_hip_joint, RL_hip_joint, RR_hip_joint",
        ),
    ],
)
def test_term_that_does_not_fit_the_model_is_one_line(block: str, term: dict[str, Any], message: str) -> None:
    found = message_of(legs_data({block: {"x": term}}))
    assert found.startswith(f"env.{block}.x.params.{message}")
    assert "\n" not in found


@pytest.mark.parametrize(
    ("top", "message"),
    [
        (
            {"sensor": [SENSORS[0] | {"link_names": ["foot"]}]},
            "sensor[0].link_names: unknown link 'foot'. Did you mean 'RR_foot'? Known: ",
        ),
        (
            {"sensor": [SENSORS[0] | {"entity": "go3"}]},
            "sensor[0].entity: unknown robot or articulation 'go3'. Did you mean 'go2'? Known: go2",
        ),
        ({"robot": GO2 | {"init_qpos": [0.0] * 11}}, f"robot.init_qpos: has 11 values for 12 joints: {JOINTS}"),
        (
            {"robot": GO2 | {"control_parts": {"legs": ["hip"]}}},
            "robot.control_parts.legs: unknown joint 'hip'. Known: FL_calf_joint, ",
        ),
    ],
)
def test_robot_or_sensor_that_does_not_fit_the_model_is_one_line(top: dict[str, Any], message: str) -> None:
    found = message_of(legs_data(**top))
    assert found.startswith(message)
    assert "\n" not in found


def test_names_of_the_model_are_in_its_order() -> None:
    names = parse_env(legs_data()).names
    assert names.robot == "go2"
    assert names.joints["go2"][:3] == ["FL_hip_joint", "FL_thigh_joint", "FL_calf_joint"]
    assert names.links["go2"][0] == "base"
    assert names.sensed == {"feet": FEET}


def test_model_that_is_not_there_is_reported_once() -> None:
    rewards = {"posture": {"func": "posture"}}
    found = message_of(legs_data({"rewards": rewards}, robot=GO2 | {"fpath": "absent.urdf"}))
    assert found.startswith("robot.fpath: ")
    assert "\n" not in found


def test_menagerie_models_are_not_downloaded_by_a_check() -> None:
    parsed = parse_env(legs_data(robot=GO2 | {"fpath": "menagerie/unitree_go2"}))
    assert parsed.problems == []
    assert parsed.names.joints == {}


class OwnRobotEnv(EmbodiedEnv):
    """Whose robot is not that of the config."""

    def _setup_robot(self) -> None:
        self.sim.add_robot(RobotCfg("go2", fpath="go2", fix_base=False))


def test_robot_of_a_task_in_code_is_not_looked_for_in_the_config() -> None:
    data = legs_data(robot=GO2 | {"collision_links": ["feet"]})
    assert parse_env(data, env_class=OwnRobotEnv).problems == []


EXCLUDED = "not with 'scene', whose file describes everything but cameras"


@pytest.mark.parametrize(
    ("extra", "line"),
    [
        ({"robot": CART}, f"robot: {EXCLUDED}"),
        ({"rigid_object": [BOX]}, f"rigid_object: {EXCLUDED}"),
        ({"light": {"direct": [{"uid": "sun"}]}}, f"light: {EXCLUDED}"),
        ({"env": {"sim_cfg": {"gravity": [0, 0, -1]}}}, f"env.sim_cfg.gravity: {EXCLUDED}"),
        ({"env": {"sim_cfg": {"physics_dt": 0.002}}}, f"env.sim_cfg.physics_dt: {EXCLUDED}"),
        ({"env": {"sim_cfg": {"solver": {"iterations": 3}}}}, f"env.sim_cfg.solver: {EXCLUDED}"),
        ({"env": {"control_parts": ["arm"]}}, f"env.control_parts: {EXCLUDED}"),
        ({"sensor": [{"uid": "feet", "sensor_type": "Contact", "link_names": ["foot"]}]}, f"sensor[0]: {EXCLUDED}"),
        ({"scene": "gone.xml"}, f"scene: no such file: {Path('gone.xml').absolute()}"),
    ],
)
def test_what_the_file_describes_cannot_stand_beside_it(tmp_path: Path, extra: dict[str, Any], line: str) -> None:
    assert message_of({"id": "SceneRL", "scene": rail_file(tmp_path)} | extra) == line


def test_a_scenes_task_needs_its_file() -> None:
    assert message_of({"id": "SceneRL"}) == "scene: required, but missing: the MJCF file of the whole scene"


def test_a_task_whose_scene_is_assembled_takes_no_file(tmp_path: Path) -> None:
    data = {"id": "CartPoleRL", "robot": CART, "scene": rail_file(tmp_path)}
    data["env"] = {"actions": {"move": {"func": "DeltaQposTerm"}}}
    assert message_of(data) == (
        "scene: only for tasks whose scene is a file, such as 'SceneRL'; CartPoleEnv's is assembled"
    )


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


def test_model_files_are_found_beside_the_config(folder: Path) -> None:
    mesh = {"shape_type": "Mesh", "fpath": "meshes/cup.obj"}
    group = {"uid": "g", "rigid_objects": {"a": {"shape": mesh}}, "folder_path": "meshes"}
    data = ENV | {
        "robot": CART | {"urdf_cfg": {"components": [{"component_type": "hand", "urdf_path": "arm.xml"}]}},
        "articulation": [{"uid": "a", "fpath": "both.xml"}],
        "rigid_object": [{"uid": "o", "shape": mesh}],
        "rigid_object_group": [group],
        "scene": "arm.xml",
    }
    cfg: Any = parse_env(data, folder=folder).cfg
    assert cfg.robot.urdf_cfg.components[0].urdf_path == cfg.scene == "task/arm.xml"
    assert cfg.articulation[0].fpath == "both.xml"  # which is in the working directory, too
    shapes = [cfg.rigid_object[0].shape, cfg.rigid_object_group[0].rigid_objects["a"].shape]
    assert [shape.fpath for shape in shapes] == ["task/meshes/cup.obj"] * 2
    assert cfg.rigid_object_group[0].folder_path == "task/meshes"


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
