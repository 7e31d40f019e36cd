"""Every observation of legs by hand, from states that are set. Shapes: N = 2 environments."""

import math
from pathlib import Path

import pytest
import torch

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers import locomotion_observations as observations
from embodichain.lab.gym.envs.managers.locomotion_observations import base_height, height_scan
from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from embodichain.lab.sim.math import quat_from_euler
from tests.lab.legs import place_base, set_command, set_feet
from tests.lab.terrain_scenes import ball_env
from tests.no_sync import no_host_sync


def test_velocities_and_gravity_are_in_the_frame_of_the_base(env: LocomotionEnv) -> None:
    place_base(env, [[0.0, 0.0, 1.0]] * 2, [[0.0, 0.0, math.pi / 2], [0.0, 0.5, 0.0]])
    env.robot.base.set_velocity(torch.tensor([[1.0, 0.0, 0.0, 0.1, 0.2, 0.3]] * 2), env.all_env_ids)
    # Turned to the left, the world's x is to the right. Nose down by 0.5, it is cos(0.5) forwards, sin(0.5) upwards.
    expected = torch.tensor([[0.0, -1.0, 0.0], [math.cos(0.5), 0.0, math.sin(0.5)]])
    torch.testing.assert_close(observations.base_lin_vel(env), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(observations.base_ang_vel(env), torch.tensor([[0.1, 0.2, 0.3]] * 2))
    expected = torch.tensor([[0.0, 0.0, -1.0], [math.sin(0.5), 0.0, -math.cos(0.5)]])
    torch.testing.assert_close(observations.projected_gravity(env), expected, atol=1e-6, rtol=0)


def test_joint_positions_are_relative_to_the_initial_ones(env: LocomotionEnv) -> None:
    offset = torch.linspace(-0.1, 0.1, 24).view(2, 12)
    env.robot.set_qpos(env.robot.get_qpos() + offset, target=False)
    env.robot.set_qvel(10.0 * offset)
    torch.testing.assert_close(observations.joint_pos_rel(env), offset, atol=1e-6, rtol=0)
    torch.testing.assert_close(observations.joint_vel(env), 10.0 * offset)


def test_last_action_is_none_at_the_start_of_an_episode(env: LocomotionEnv) -> None:
    assert not observations.last_action(env).any()
    action = torch.linspace(-1.0, 1.0, 24).view(2, 12)
    env.step(action)
    assert torch.equal(observations.last_action(env), action)
    env.reset(options={"reset_ids": [0]})
    assert torch.equal(observations.last_action(env), torch.stack((torch.zeros(12), action[1])))


def test_phase_turns_with_the_frequency(env: LocomotionEnv) -> None:
    set_command(env, [[0.5, 0.0, 0.0], [0.0, 0.05, 0.05]])  # the second's norm is 0.07 < 0.1
    env.elapsed_steps = torch.tensor([3, 3])
    # 3 steps * 0.02 s * 2 / s = 0.12 strides
    angle = 2 * math.pi * 0.12
    expected = torch.tensor([[math.sin(angle), math.cos(angle)], [0.0, 0.0]])
    torch.testing.assert_close(observations.gait_phase(env, frequency=2.0), expected, atol=1e-6, rtol=0)
    env.elapsed_steps = torch.tensor([28, 0])  # 1.12 strides: the same
    torch.testing.assert_close(observations.gait_phase(env, frequency=2.0), expected, atol=1e-5, rtol=0)


def test_height_is_that_of_the_base(env: LocomotionEnv) -> None:
    place_base(env, [[3.0, 0.0, 0.31], [0.0, 2.0, 0.5]], [[0.0] * 3] * 2)
    torch.testing.assert_close(observations.base_height(env), torch.tensor([[0.31], [0.5]]))


def test_contact_is_one_for_each_foot_that_touches(env: LocomotionEnv) -> None:
    set_feet(env.sim.get_contact_sensor("feet"), in_contact=[[True, False, False, True], [False] * 4])
    assert observations.feet_contact(env, sensor="feet").tolist() == [[1.0, 0.0, 0.0, 1.0], [0.0] * 4]


TERMS = {
    "scan": {"func": "height_scan", "params": {"size": [1.0, 0.5], "resolution": 0.5}},
    "height": {"func": "base_height"},
}


@pytest.fixture
def stairs(tmp_path: Path) -> EmbodiedEnv:
    stairs = ball_env(tmp_path, {"observations": TERMS}, num_envs=2)
    stairs.reset()
    return stairs


def put(stairs: EmbodiedEnv, x: float, y: float, z: float, *euler_degrees: float) -> None:
    """Put the robots at one pose."""
    angles = torch.tensor([math.radians(angle) for angle in euler_degrees])
    row = torch.cat((torch.tensor([x, y, z]), quat_from_euler(angles)))
    stairs.robot.set_local_pose(row.expand(2, 7), stairs.all_env_ids)


def test_height_is_above_the_ground_below(stairs: EmbodiedEnv) -> None:
    put(stairs, 4.2, -2.1, 0.7, 10.0, 20.0, 30.0)  # on the highest platform, at 2 steps of 0.2 m
    torch.testing.assert_close(base_height(stairs), torch.full((2, 1), 0.3))


def test_scan_reads_the_ground_in_front_of_the_heading(stairs: EmbodiedEnv) -> None:
    # The middle platform, at 0.3 m, ends at x = 1, the first step, at 0.15 m, at 1.5; both sides are 0.25 m wide.
    put(stairs, 0.5, -2.0, 0.5, 0.0, 0.0, 0.0)
    scan = height_scan(stairs, (2.0, 0.5), 0.5)
    # x: -0.5, 0, 0.5, 1, 1.5; y: -0.25, 0.25 of each.
    expected = torch.tensor([0.3, 0.3, 0.3, 0.3, 0.15]).repeat_interleave(2) - 0.5
    torch.testing.assert_close(scan, expected.expand(2, 10))
    # Turned by 180 degrees, what was in front is behind: the first point.
    put(stairs, 0.5, -2.0, 0.5, 0.0, 0.0, 180.0)
    torch.testing.assert_close(height_scan(stairs, (2.0, 0.5), 0.5), expected.flip(0).expand(2, 10))


def test_scan_turns_with_the_heading_alone(stairs: EmbodiedEnv) -> None:
    put(stairs, 0.5, 1.0, 0.5, 0.0, 0.0, 40.0)
    level = height_scan(stairs)
    assert len(level[0].unique()) > 20
    put(stairs, 0.5, 1.0, 0.5, 25.0, -35.0, 40.0)
    torch.testing.assert_close(height_scan(stairs), level)  # roll and pitch come before the turn about the fixed z


def test_scan_is_clipped_and_has_a_point_at_each_corner(stairs: EmbodiedEnv) -> None:
    put(stairs, 0.0, -2.0, 3.0, 0.0, 0.0, 0.0)
    assert height_scan(stairs).shape == (2, 17 * 11)  # 1.6 m and 1.0 m in steps of 0.1 m
    assert (height_scan(stairs, clip=0.25) == -0.25).all()


def test_ground_without_a_terrain_is_at_zero(tmp_path: Path) -> None:
    stairs = ball_env(tmp_path, terrain=None, num_envs=2)
    stairs.reset()
    torch.testing.assert_close(base_height(stairs), torch.full((2, 1), 0.2))
    torch.testing.assert_close(height_scan(stairs), torch.full((2, 187), -0.2))


def test_terms_are_found_by_name_and_do_not_wait_for_the_device(
    stairs: EmbodiedEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    obs, _ = stairs.reset()
    assert obs["scan"].shape == (2, 6)  # 3 points along x, 2 along y
    assert obs["height"].shape == (2, 1)
    with no_host_sync(monkeypatch):
        height_scan(stairs)
        base_height(stairs)
