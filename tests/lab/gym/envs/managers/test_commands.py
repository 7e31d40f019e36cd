"""Velocity commands: their ranges, and the heading. Shapes: N environments."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import CommandTerm
from embodichain.lab.gym.envs.managers.commands import UniformVelocityCommand
from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from tests.lab.gym.envs.test_state import assert_goes_on
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


def test_headings_fill_their_range_and_follow_the_base() -> None:
    env, term = told(200, standing_share=0.0, heading=[-1.0, 2.0], ang_vel_z=[-9.0, 9.0], heading_stiffness=1.0)
    assert float(term._heading.min()) == pytest.approx(-1.0, abs=0.05)
    assert float(term._heading.max()) == pytest.approx(2.0, abs=0.05)
    torch.testing.assert_close(term.command[:, 2], term._heading - env.robot.base.heading())
    env.step(torch.zeros(200, 12))
    torch.testing.assert_close(term.command[:, 2], term._heading - env.robot.base.heading())


def test_held_command_stays_until_it_is_let_go() -> None:
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


def rested(env: LocomotionEnv) -> Any:
    return env.step(torch.zeros(env.num_envs, 12))


def commands_of(env: LocomotionEnv, steps: int) -> Tensor:
    """Return the commands of an episode's steps, [steps, N, 3]."""
    found = []
    for _ in range(steps):
        rested(env)
        found.append(env.command_manager.get_command("base_velocity"))
    return torch.stack(found)


def test_command_stays_for_its_time_and_is_then_another() -> None:
    env = legs_env(4, {"commands": resampled(0.1, 0.1)})
    env.reset(seed=1)
    first = env.command_manager.get_command("base_velocity")
    steps = commands_of(env, 10)
    # 0.1 s are five steps of 0.02 s: the draws are at the ends of the fifth and the tenth.
    assert all(torch.equal(step, first) for step in steps[:4])
    assert all(torch.equal(step, steps[4]) for step in steps[4:9])
    assert not (steps[4] == first).all(dim=1).any()
    assert not (steps[9] == steps[4]).all(dim=1).any()


def resampled(shortest: float, longest: float, **params: Any) -> dict[str, Any]:
    params = {"standing_share": 0.0, **params}
    return {
        "base_velocity": {
            "func": "UniformVelocityCommand", "resampling_time": [shortest, longest], "params": params,
        }
    }  # fmt: skip


def test_times_between_draws_are_within_their_range_and_differ() -> None:
    env = legs_env(16, {"commands": resampled(0.1, 0.2)}, max_episode_steps=100)
    env.reset(seed=1)
    steps = commands_of(env, 60)
    changes = (steps[1:] != steps[:-1]).any(dim=2)
    gaps = [torch.diff(column.nonzero().squeeze(1)) for column in changes.unbind(1)]
    found = torch.cat(gaps)
    # 0.1 s to 0.2 s: five to ten steps, rounded.
    assert int(found.min()) == 5
    assert int(found.max()) == 10
    assert all(len(set(gap.tolist())) > 1 for gap in gaps)


def test_tracked_command_is_the_last_actions() -> None:
    env = legs_env(2, {"commands": resampled(0.02, 0.02)})  # drawn anew after each step
    obs, _ = env.reset(seed=1)
    for _ in range(5):
        told = obs["command"].clone()
        obs, _, _, _, info = rested(env)
        assert torch.equal(env.command_manager.get_tracked("base_velocity"), told)
        assert not torch.equal(obs["command"], told)
        assert torch.equal(obs["command"], env.command_manager.get_command("base_velocity"))
        linear = torch.linalg.vector_norm(obs["velocity"][:, :2] - told[:, :2], dim=1)
        torch.testing.assert_close(info["metrics"]["velocity_error_xy"], linear)


def test_first_step_is_about_the_episodes_first_command() -> None:
    env = legs_env(2, {"commands": resampled(5.0, 5.0)}, max_episode_steps=3)
    obs, _ = env.reset(seed=1)
    for _ in range(3):
        before = obs["command"]
        obs, *_ = rested(env)
    assert not torch.equal(obs["command"], before)  # of the new episode
    rested(env)
    assert torch.equal(env.command_manager.get_tracked("base_velocity"), obs["command"])


def test_draws_do_not_depend_on_the_number_of_environments() -> None:
    few, many = (legs_env(n, {"commands": resampled(0.06, 0.2, standing_share=0.3)}) for n in (4, 8))
    for env in (few, many):
        env.reset(seed=3)
    torch.testing.assert_close(commands_of(few, 20), commands_of(many, 20)[:, :4], rtol=0, atol=0)


def test_reset_of_some_leaves_the_commands_of_the_others() -> None:
    # In heading mode a command depends on the state, which an event may have changed since it was computed.
    env = legs_env(3, {"commands": resampled(5.0, 5.0, heading=[-3.0, 3.0])})
    env.reset(seed=1)
    before = env.command_manager.get_command("base_velocity")
    tracked = env.command_manager.get_tracked("base_velocity")
    env.robot.base.set(env.robot.base.get()[:, [0, 1, 2, 6, 4, 5, 3]].clone(), env.all_env_ids)  # about face
    env.reset(options={"reset_ids": [1]})
    for name, old in (("get_command", before), ("get_tracked", tracked)):
        new = getattr(env.command_manager, name)("base_velocity")
        assert torch.equal(new[[0, 2]], old[[0, 2]])
        assert not torch.equal(new[1], old[1])


def test_environment_waiting_in_a_chunk_keeps_its_command() -> None:
    env = legs_env(2, {"commands": resampled(0.04, 0.04)}, max_episode_steps=50)
    env.reset(seed=1)
    env.elapsed_steps[1] = 48
    chunk = torch.zeros(2, 6, 12)
    _, _, _, truncated, info = env.step_chunk(chunk)
    assert truncated.tolist() == [False, True]
    # Environment 1 makes two of the six steps. Its draw at the end of the second is the last, in its final observation.
    one = legs_env(2, {"commands": resampled(0.04, 0.04)}, max_episode_steps=50)
    one.reset(seed=1)
    one.elapsed_steps[1] = 48
    for _ in range(2):
        _, _, _, _, last = rested(one)
    assert torch.equal(info["final_obs"]["command"][1], last["final_obs"]["command"][1])


def test_checkpoint_in_an_episode_goes_on_with_the_next_draws() -> None:
    curriculum = {"range": {"func": "command_range", "params": {"step": 0.3}}}
    env = {"commands": resampled(0.06, 0.2, standing_share=0.3, heading=[-3.0, 3.0]), "curriculum": curriculum}
    assert_goes_on(lambda: legs_env(3, env, max_episode_steps=12), steps=29)  # five steps into the third episode


class Goal(CommandTerm):
    """A user's command: a number that grows while it is followed."""

    size = 1

    def draw(self, env_ids: Tensor) -> Tensor:
        return self.env.random.uniform(env_ids, 0.0, 1.0, 1)

    def follow(self) -> None:
        self.command = self.command + 1.0


def test_users_command_is_followed_once_a_draw_and_step() -> None:
    commands = resampled(5.0, 5.0) | {"goal": {"func": Goal, "resampling_time": [5.0, 5.0]}}
    env = legs_env(2, {"commands": commands})
    env.reset(seed=1)
    first = env.command_manager.get_command("goal")
    assert ((first >= 1.0) & (first < 2.0)).all()
    rested(env)
    assert torch.equal(env.command_manager.get_command("goal"), first + 1.0)
    assert torch.equal(env.command_manager.get_tracked("goal"), first)


def test_numbers_with_names_fill_their_ranges_or_are_zeros() -> None:
    ranges = {"neck, rad": [-0.4, 0.2], "height, m": [0.1, 0.3]}
    func = {"func": "UniformCommand", "resampling_time": [0.02, 0.02], "params": {"ranges": ranges, "zero_share": 0.25}}
    velocity = {"func": "UniformVelocityCommand", "resampling_time": [9.0, 9.0]}
    env = legs_env(400, {"commands": {"base_velocity": velocity, "pose": func}})
    env.reset(seed=1)
    term = env.command_manager.get_term("pose")
    assert (term.numbers, term.size) == (("neck, rad", "height, m"), 2)
    assert term.limits() == ([-0.4, 0.1], [0.2, 0.3])
    zeros = (term.command == 0.0).all(dim=1)
    assert 75 <= int(zeros.sum()) <= 125
    drawn = term.command[~zeros]
    torch.testing.assert_close(drawn.amin(dim=0), torch.tensor([-0.4, 0.1]), atol=0.02, rtol=0)
    torch.testing.assert_close(drawn.amax(dim=0), torch.tensor([0.2, 0.3]), atol=0.02, rtol=0)
    first = term.command
    env.step(torch.zeros(400, 12))
    assert (term.command != first).any(dim=1).float().mean() > 0.9
