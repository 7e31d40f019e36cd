"""Joints and links that a config names, checked against the model's file when the config is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from embodichain.cli import main
from embodichain.lab.gym.config.env_config import config_to_cfg, parse_env
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.sim.cfg import RobotCfg
from embodichain.utils import ConfigError
from tests.agents.rl.fakes import write_config
from tests.lab.legs import FEET, GO2, SENSORS, legs_data

JOINTS = "FL_hip_joint, FL_thigh_joint, FL_calf_joint, FR_hip_joint, "  # the first of 12
UID = {"uid": "go2"}
NO_LINK = UID | {"link_names": ["bas"]}


def message_of(env: dict[str, Any] | None = None, **top: Any) -> str:
    with pytest.raises(ConfigError) as error:
        config_to_cfg(legs_data(env, **top))
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
            {
                "func": "randomize_link_mass",
                "params": {"entity_cfg": NO_LINK, "mass_range": [0, 1]},
            },
            "entity_cfg.link_names: unknown link 'bas'. Did you mean 'base'? Known: FL_calf, ",
        ),
        (
            "events",
            {"func": "randomize_joint_drive", "params": {"entity_cfg": UID | {"joint_names": "knee"}}},
            "entity_cfg.joint_names: unknown joint 'knee'. Known: FL_calf_joint, ",
        ),
        (
            "events",
            {"func": "randomize_robot_qpos", "params": {"qpos_range": [[0, 0], [1, 1]]}},
            f"qpos_range: has 2 values for 12 joints: {JOINTS}",
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
    found = message_of({block: {"x": term}})
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
        (
            {"robot": GO2 | {"collision_links": ["feet"]}},
            "robot.collision_links: unknown link or collision shape 'feet'. Known: FL_calf, ",
        ),
        (
            {"robot": GO2 | {"drive_pros": {"stiffness": {"hip": 30.0}}}},
            "robot.drive_pros.stiffness: unknown joint 'hip'. Known: FL_calf_joint, ",
        ),
        ({"robot": GO2 | {"init_qpos": [0.0] * 11}}, f"robot.init_qpos: has 11 values for 12 joints: {JOINTS}"),
        (
            {"robot": GO2 | {"control_parts": {"legs": ["hip"]}}},
            "robot.control_parts.legs: unknown joint 'hip'. Known: FL_calf_joint, ",
        ),
    ],
)
def test_robot_or_sensor_that_does_not_fit_the_model_is_one_line(top: dict[str, Any], message: str) -> None:
    found = message_of(**top)
    assert found.startswith(message)
    assert "\n" not in found


def test_validate_exits_with_2_and_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, legs_data(sensor=[SENSORS[0] | {"link_names": ["foot"]}]))
    assert main(["validate", path]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "sensor[0].link_names: unknown link 'foot'" in line


def test_names_of_the_model_are_in_its_order() -> None:
    names = parse_env(legs_data()).names
    assert names.robot == "go2"
    assert names.joints["go2"][:3] == ["FL_hip_joint", "FL_thigh_joint", "FL_calf_joint"]
    assert names.links["go2"][0] == "base"
    assert names.sensed == {"feet": FEET}


def test_model_that_is_not_there_is_reported_once() -> None:
    found = message_of({"rewards": {"posture": {"func": "posture"}}}, robot=GO2 | {"fpath": "absent.urdf"})
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
