"""Velocity commands: their ranges, and the heading. Shapes: N environments."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.commands import UniformVelocityCommand
from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from tests.lab.legs import legs_env, place_base

RANGES: dict[str, Any] = {"lin_vel_x": [-0.5, 1.0], "lin_vel_y": [0.2, 0.4], "ang_vel_z": [-2.0, -1.0]}


def told(num_envs: int, **params: Any) -> tuple[LocomotionEnv, UniformVelocityCommand]:
    func = {"func": "UniformVelocityCommand", "resampling_time": [9.0, 9.0], "params": RANGES | params}
    env = legs_env(num_envs, {"commands": {"base_velocity": func}})
    env.reset(seed=1)
    term = env.command_manager.get_term("base_velocity")
    assert isinstance(term, UniformVelocityCommand)
    return env, term


def test_velocities_fill_their_ranges() -> None:
    _, term = told(400, standing_share=0.0)
    low, high = term.command.amin(dim=0), term.command.amax(dim=0)
    # 400 draws come within 2 % of each end.
    torch.testing.assert_close(low, torch.tensor([-0.5, 0.2, -2.0]), atol=0.03, rtol=0)
    torch.testing.assert_close(high, torch.tensor([1.0, 0.4, -1.0]), atol=0.03, rtol=0)


@pytest.mark.parametrize(("share", "lowest", "highest"), [(0.0, 0, 0), (0.25, 75, 125), (1.0, 400, 400)])
def test_share_of_the_draws_is_to_stand(share: float, lowest: int, highest: int) -> None:
    _, term = told(400, standing_share=share)
    standing = int((term.command == 0.0).all(dim=1).sum())
    assert lowest <= standing <= highest  # 100 +- 3 * sqrt(400 * 0.25 * 0.75) = 26


def test_scale_of_the_ranges_is_a_factor_of_the_next_draws() -> None:
    env, term = told(100, standing_share=0.0)
    whole = term.command
    term.range_scale = torch.tensor(0.5)
    env.reset(seed=1)
    torch.testing.assert_close(term.command, 0.5 * whole)


def rates(headings: list[float], yaws: list[float], **params: Any) -> Tensor:
    """Return the commanded yaw rates for headings to turn to, at present yaw angles."""
    env, term = told(len(yaws), standing_share=0.0, heading=[-math.pi, math.pi], **params)
    place_base(env, [[0.0, 0.0, 1.0]] * len(yaws), [[0.0, 0.0, yaw] for yaw in yaws])
    term._heading = torch.tensor(headings)
    term.follow()
    return term.command[:, 2]


def test_yaw_rate_is_stiffness_times_the_angle_that_is_left() -> None:
    found = rates([1.0, -1.0], [0.6, -0.4], ang_vel_z=[-2.0, 2.0], heading_stiffness=0.5)
    torch.testing.assert_close(found, torch.tensor([0.2, -0.3]), atol=1e-5, rtol=0)


def test_heading_is_reached_the_short_way_over_the_wrap() -> None:
    # From 3.0 rad to -3.0 rad it is 2 pi - 6 = 0.283 rad to the left, from -3.0 to 3.0 as much to the right.
    found = rates([-3.0, 3.0], [3.0, -3.0], ang_vel_z=[-2.0, 2.0], heading_stiffness=1.0)
    torch.testing.assert_close(found, torch.tensor([2 * math.pi - 6, 6 - 2 * math.pi]), atol=1e-5, rtol=0)


def test_yaw_rate_stays_within_its_range() -> None:
    found = rates([2.0, -2.0], [0.0, 0.0], ang_vel_z=[-0.3, 0.4], heading_stiffness=1.0)
    torch.testing.assert_close(found, torch.tensor([0.4, -0.3]))


def test_heading_of_those_that_stand_commands_no_turn() -> None:
    env, term = told(4, standing_share=1.0, heading=[2.0, 3.0])
    env.step(torch.zeros(4, 12))
    assert not term.command.any()


def test_headings_fill_their_range_and_follow_the_base() -> None:
    env, term = told(200, standing_share=0.0, heading=[-1.0, 2.0], ang_vel_z=[-9.0, 9.0], heading_stiffness=1.0)
    assert float(term._heading.min()) == pytest.approx(-1.0, abs=0.05)
    assert float(term._heading.max()) == pytest.approx(2.0, abs=0.05)
    torch.testing.assert_close(term.command[:, 2], term._heading - env.robot.base.heading())
    env.step(torch.zeros(200, 12))
    torch.testing.assert_close(term.command[:, 2], term._heading - env.robot.base.heading())


def test_held_command_stays_through_draws_and_new_episodes_until_it_is_let_go() -> None:
    """Commands are drawn anew after 0.06 to 0.2 s, 3 to 10 control steps, and episodes begin at 5."""
    env = legs_env(2, max_episode_steps=5)
    env.reset()
    term = env.command_manager.get_term("base_velocity")
    drawn = term.command
    term.hold([0.5, 0.0, -0.25])
    for _ in range(12):
        env.step(torch.zeros(2, 12))
        assert term.command.tolist() == [[0.5, 0.0, -0.25]] * 2
    assert term.tracked.tolist() == [[0.5, 0.0, -0.25]] * 2
    term.hold(None)
    env.step(torch.zeros(2, 12))
    assert not torch.equal(term.command, drawn)
    assert not torch.equal(term.command, term.tracked)


def test_sliders_of_a_velocity_command_have_its_ranges() -> None:
    command = {"func": "UniformVelocityCommand", "params": {"lin_vel_x": [-0.5, 1.0], "ang_vel_z": [-0.8, 0.8]}}
    term = legs_env(env={"commands": {"base_velocity": command}}).command_manager.get_term("base_velocity")
    assert term.numbers == ("forwards, m/s", "to the left, m/s", "yaw rate, rad/s")
    low, high = term.limits()
    assert low == pytest.approx([-0.5, -0.5, -0.8])
    assert high == pytest.approx([1.0, 0.5, 0.8])
