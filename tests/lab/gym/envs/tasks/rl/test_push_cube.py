from __future__ import annotations

from typing import Any

import torch

from embodichain.lab.gym.envs.tasks.rl import PushCubeEnv
from tests.lab.originals import PUSH_CUBE
from tests.lab.scenes import env_of


def built(num_envs: int = 2, **extensions: Any) -> PushCubeEnv:
    env = env_of({**PUSH_CUBE, "env": {**PUSH_CUBE["env"], "extensions": extensions}}, num_envs)
    assert isinstance(env, PushCubeEnv)
    env.reset(seed=1)
    return env


def place(env: PushCubeEnv, offsets: list[list[float]]) -> None:
    """Put the cubes beside their goals."""
    pos = env.goal_pose[:, :3, 3] + torch.tensor(offsets)
    env.sim.get_rigid_object("cube").set_local_pose(torch.cat((pos, torch.tensor([[1.0, 0, 0, 0]] * 2)), dim=1))


def test_arm_by_the_names_of_the_original_stays_where_it_is_under_stiff_drives() -> None:
    # What a config names that assembles the original's own UR10: its joints, its flange, one gain for all.
    robot = {key: value for key, value in PUSH_CUBE["robot"].items() if key != "robot_type"}
    arm = {"component_type": "arm", "urdf_path": "UniversalRobots/UR10/UR10.urdf"}
    robot["urdf_cfg"] = {"components": [arm, *robot["urdf_cfg"]["components"]]}
    robot["control_parts"] = {"arm": ["JOINT[1-6]"]}
    robot["solver_cfg"] = {"arm": robot["solver_cfg"]["arm"] | {"end_link_name": "ee_link"}}
    env = env_of({**PUSH_CUBE, "robot": robot}, 2)
    env.reset(seed=1)
    other = built()
    torch.testing.assert_close(env.robot.get_eef_pose(), other.robot.get_eef_pose())
    before = env.robot.get_qpos().clone()
    for _ in range(20):
        env.step(torch.zeros(2, 6))
    assert (env.robot.get_qpos() - before).abs().max() < 1e-5
    assert env.robot.get_qvel().abs().max() < 1e-4
    for _ in range(5):  # each wants 0.1 rad more than there is; efforts are limited, and momentum carries
        env.step(torch.ones(2, 6))
    moved = (env.robot.get_qpos() - before)[:, :6]
    assert (moved > 0.05).all()
    assert (moved < 1.0).all()


def test_cube_within_the_threshold_of_the_goal_is_success_whatever_its_height() -> None:
    env = built(success_threshold=0.05)
    place(env, [[0.03, 0.03, 0.5], [0.03, 0.041, 0.0]])
    success, fail, metrics = env.compute_task_state()
    # sqrt(2) 0.03 = 0.0424 and sqrt(0.03^2 + 0.041^2) = 0.0508
    torch.testing.assert_close(metrics["distance_to_goal"], torch.tensor([0.042426, 0.050804]), atol=1e-5, rtol=0)
    assert success.tolist() == [True, False]
    assert fail.tolist() == [False, False]


def test_threshold_of_the_config_decides() -> None:
    env = built(success_threshold=0.06)
    place(env, [[0.03, 0.041, 0.0], [0.06, 0.01, 0.0]])
    assert env.compute_task_state()[0].tolist() == [True, False]


def test_success_ends_the_episode_and_is_rewarded() -> None:
    env = built(success_threshold=0.05)
    place(env, [[0.0, 0.0, 0.0], [0.2, 0.0, 0.0]])
    _, reward, terminated, truncated, info = env.step(torch.zeros(2, 6))
    assert terminated.tolist() == info["success"].tolist() == [True, False]
    assert not truncated.any()
    assert info["rewards"]["success"].tolist() == [10.0, 0.0]
    assert reward[0].item() > 10.0


def test_episode_that_begins_has_its_goals_disc_on_the_ground_at_the_new_goal() -> None:
    env = built()
    row = int(env.sim.model.body("goal").mocapid[0])
    for options in ({}, {"reset_ids": [1]}):
        env.reset(options=options)
        disc = env.sim.backend.read("mocap_pos")[:, row]
        torch.testing.assert_close(disc[:, :2], env.goal_pose[:, :2, 3])
        assert (disc[:, 2] < 0.01).all()
        assert (disc[:, 2] > 0.0).all()
