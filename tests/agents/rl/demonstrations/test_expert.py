"""Legend: N envs, T steps of an episode, O flattened observation size."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from embodichain.agents.rl.demonstrations.expert import ExpertEpisode, play_expert
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.utils.observations import flat_input
from tests.lab.scenes import cart_cfg

START = {"start": {"func": "randomize_robot_qpos", "mode": "reset", "params": {"qpos_range": [[-1, -0.49], [1, 0.49]]}}}


class Steered(CartPoleEnv):
    """Its expert moves the cart away from where the pole leans, and so lets it fall."""

    def expert_action(self) -> Tensor:
        return -3.0 * self.robot.get_qpos("hand").sign()  # beyond the limits


def steered(num_envs: int) -> Steered:
    return Steered(cart_cfg(num_envs, {"events": START}, max_episode_steps=6))


def test_episodes_are_what_the_environment_gave() -> None:
    env = steered(2)
    episodes = play_expert(env, 2, ("robot/qpos",), seed=3)
    obs, _ = env.reset(seed=3, options={"enumerate_episodes": True})
    is_running = [True, True]
    for t in range(6):
        action = env.expert_action()
        for i, episode in enumerate(episodes):
            if is_running[i]:
                assert torch.equal(episode.observed["obs"][t], flat_input(obs)[i])
                assert torch.equal(episode.observed["entries", "robot/qpos"][t], obs["robot", "qpos"][i])
                assert torch.equal(episode.acted["action"][t], action[i].clamp(-1, 1))  # as it was executed
        obs, reward, terminated, truncated, info = env.step(action)
        for i, episode in enumerate(episodes):
            if not is_running[i]:
                continue
            assert episode.acted["reward"][t] == reward[i]
            assert episode.acted["terminated"][t] == terminated[i]
            if terminated[i] or truncated[i]:
                is_running[i] = False
                assert len(episode.acted) == t + 1
                assert torch.equal(episode.observed["obs"][t + 1], flat_input(info["final_obs"])[i])
                assert episode.is_success == bool(info["success"][i])
    assert not any(is_running)


def test_episodes_are_the_first_ones_whatever_the_number_of_environments() -> None:
    by_number = [play_expert(steered(n), 5, (), seed=7) for n in (1, 2, 5)]
    lengths = [[len(episode.acted) for episode in episodes] for episodes in by_number]
    assert lengths[0] == lengths[1] == lengths[2]
    assert len(set(lengths[0])) > 1  # some fall, some do not
    for one, *others in zip(*by_number, strict=True):
        for other in others:
            torch.testing.assert_close(one.observed["obs"], other.observed["obs"])
            torch.testing.assert_close(one.acted["action"], other.acted["action"])


def test_episode_that_is_cut_and_one_that_fails_are_told_apart() -> None:
    episodes: list[ExpertEpisode] = play_expert(steered(5), 5, (), seed=7)
    for episode in episodes:
        is_cut = len(episode.acted) == 6 and not episode.acted["terminated"][-1]
        assert episode.acted["terminated"].sum() == (0 if is_cut else 1)
    assert {bool(episode.acted["terminated"].any()) for episode in episodes} == {True, False}


@pytest.mark.parametrize("seed", [1, 2])
def test_other_seed_has_other_episodes(seed: int) -> None:
    one, two = (play_expert(steered(2), 1, (), seed=s)[0] for s in (seed, seed + 5))
    assert not torch.equal(one.observed["obs"][0], two.observed["obs"][0])
