"""Velocities and gravity in the frame of a free base, from poses that are set. Shapes: N = 2 environments."""

from __future__ import annotations

import math

import pytest
import torch

from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from tests.lab.legs import GO2, legs_env, place_base

QUARTER = math.pi / 2
UP = [[0.0, 0.0, 1.0]] * 2


@pytest.fixture(scope="module")
def env() -> LocomotionEnv:
    env = legs_env(2)
    env.reset(seed=1)
    return env


def test_linear_velocity_is_in_the_frame_of_the_base(env: LocomotionEnv) -> None:
    # Turned a quarter to the left, the world's x is to the right of the base: -y. Rolled a quarter (about x, so that
    # the base's y is the world's z), the world's z is the base's y.
    place_base(env, UP, [[0.0, 0.0, QUARTER], [QUARTER, 0.0, 0.0]])
    velocity = torch.tensor([[1.0, 2.0, 3.0, 0.0, 0.0, 0.0]]).repeat(2, 1)
    env.robot.base.set_velocity(velocity, env.all_env_ids)
    expected = torch.tensor([[2.0, -1.0, 3.0], [1.0, 3.0, -2.0]])
    torch.testing.assert_close(env.robot.base.linear_velocity(), expected, atol=1e-6, rtol=0)


def test_angular_velocity_is_in_the_frame_of_the_base(env: LocomotionEnv) -> None:
    # Rolled a quarter, a turn about the world's z is one about the base's y. The engine's free joint has it in the
    # frame of the body: the orientation after a step shows it.
    place_base(env, UP, [[0.0, 0.0, 0.0], [QUARTER, 0.0, 0.0]])
    env.robot.base.set_velocity(torch.tensor([[0.0] * 5 + [2.0], [0.0] * 4 + [2.0, 0.0]]), env.all_env_ids)
    torch.testing.assert_close(
        env.robot.base.angular_velocity(), torch.tensor([[0.0, 0.0, 2.0], [0.0, 2.0, 0.0]]), atol=1e-6, rtol=0
    )
    before = env.robot.base.heading()
    env.sim.update(1)
    # Both turn about the world's z axis: 2 rad/s * 0.005 s.
    torch.testing.assert_close(env.robot.base.heading() - before, torch.full((2,), 0.01), atol=2e-3, rtol=0)


def test_projected_gravity_is_downwards_in_the_frame_of_the_base(env: LocomotionEnv) -> None:
    # Nose down by 0.3 rad: gravity points forwards, sin(0.3). Rolled to the right by 0.2 rad: to the right, -y.
    place_base(env, UP, [[0.0, 0.3, 1.0], [0.2, 0.0, -2.0]])
    expected = torch.tensor([[math.sin(0.3), 0.0, -math.cos(0.3)], [0.0, -math.sin(0.2), -math.cos(0.2)]])
    torch.testing.assert_close(env.robot.base.projected_gravity(), expected, atol=1e-6, rtol=0)


def test_heading_is_the_direction_of_the_x_axis_whatever_the_lean(env: LocomotionEnv) -> None:
    place_base(env, UP, [[0.3, 0.0, 2.5], [0.0, 0.6, -1.0]])
    torch.testing.assert_close(env.robot.base.heading(), torch.tensor([2.5, -1.0]), atol=1e-6, rtol=0)


def test_velocity_is_set_in_its_rows_alone(env: LocomotionEnv) -> None:
    env.reset(seed=1)
    env.robot.base.set_velocity(torch.tensor([[0.5, 0.0, 0.0, 0.0, 0.0, 1.0]]), torch.tensor([1]))
    assert env.robot.base.linear_velocity()[:, 0].tolist() == pytest.approx([0.0, 0.5])
    assert env.robot.base.angular_velocity()[:, 2].tolist() == pytest.approx([0.0, 1.0])
    # The joints stay at rest.
    assert not env.robot.get_qvel().any()


def test_fixed_base_has_no_velocity() -> None:
    env = legs_env(1, robot=GO2 | {"fix_base": True, "init_pos": [0.0, 0.0, 1.0]})
    env.reset(seed=1)
    env.step(torch.ones(1, 12))
    base = env.robot.base
    assert not base.is_free
    assert not base.linear_velocity().any()
    assert not base.angular_velocity().any()
    torch.testing.assert_close(base.projected_gravity(), torch.tensor([[0.0, 0.0, -1.0]]))
