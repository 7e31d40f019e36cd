"""When commands are drawn, and which one counts. Shapes: N environments."""

from __future__ import annotations

import io
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import CommandTerm
from embodichain.lab.gym.envs.tasks.rl.locomotion import LocomotionEnv
from embodichain.utils import ConfigError
from embodichain.utils.observations import flatten_dict_observation
from embodichain.utils.state import freeze, thaw
from tests.lab.legs import legs_env
from tests.lab.scenes import actions_for


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


def test_tracked_command_is_the_one_that_the_last_action_followed() -> None:
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


def test_first_step_of_an_episode_is_about_the_episodes_first_command() -> None:
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


def test_environment_that_waits_in_a_chunk_keeps_its_command_and_time() -> None:
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
    def make() -> LocomotionEnv:
        curriculum = {"range": {"func": "command_range", "params": {"step": 0.3}}}
        ranges = resampled(0.06, 0.2, standing_share=0.3, heading=[-3.0, 3.0])
        return legs_env(3, {"commands": ranges, "curriculum": curriculum}, max_episode_steps=12)

    def run(env: LocomotionEnv, actions: Tensor) -> list[Tensor]:
        out = []
        for action in actions:
            obs, reward, terminated, truncated, info = env.step(action)
            out += [flatten_dict_observation(obs), reward, terminated, truncated, *info["metrics"].values()]
        return out

    env, fresh = make(), make()
    env.reset(seed=1)
    actions = actions_for(env, 60)
    run(env, actions[:29])  # five steps into the third episode
    buffer = io.BytesIO()
    torch.save(freeze(env.state_dict()), buffer)
    buffer.seek(0)
    fresh.reset()
    run(fresh, actions[:3])
    fresh.load_state_dict(thaw(torch.load(buffer, weights_only=True)))
    expected, got = run(env, actions[29:]), run(fresh, actions[29:])
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


def test_command_that_is_not_there_is_an_error_that_names_those_there_are() -> None:
    env = legs_env(1)
    with pytest.raises(
        ConfigError, match=r"env.commands: unknown command 'base_velocty'. Did you mean 'base_velocity'"
    ):
        env.command_manager.get_command("base_velocty")


class Goal(CommandTerm):
    """A user's command: a number that grows while it is followed."""

    size: ClassVar[int] = 1

    def draw(self, env_ids: Tensor) -> Tensor:
        return self.env.random.uniform(env_ids, 0.0, 1.0, 1)

    def follow(self) -> None:
        self.command = self.command + 1.0


def test_users_command_is_followed_once_after_each_draw_and_each_step() -> None:
    commands = resampled(5.0, 5.0) | {"goal": {"func": Goal, "resampling_time": [5.0, 5.0]}}
    env = legs_env(2, {"commands": commands})
    env.reset(seed=1)
    first = env.command_manager.get_command("goal")
    assert ((first >= 1.0) & (first < 2.0)).all()
    rested(env)
    assert torch.equal(env.command_manager.get_command("goal"), first + 1.0)
    assert torch.equal(env.command_manager.get_tracked("goal"), first)
