"""Every observation of legs by hand, from states that are set. Shapes: N = 2 environments."""

from __future__ import annotations

import math

import torch

from embodichain.lab.gym.envs.managers import locomotion_observations as observations
from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from tests.lab.legs import place_base, set_command, set_feet


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


def test_command_is_that_for_the_next_action(env: LocomotionEnv) -> None:
    term = env.command_manager.get_term("base_velocity")
    term.command = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    assert torch.equal(observations.generated_command(env), term.command)


def test_phase_turns_with_the_frequency_and_stops_where_the_command_is_to_stand(env: LocomotionEnv) -> None:
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
