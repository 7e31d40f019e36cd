"""Episodes of a task's scripted expert.

Shapes: N environments, T steps of an episode, O flattened observation size, A action size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils.observations import flat_input, select_entries


@dataclass(frozen=True)
class ExpertEpisode:
    """An episode of the expert.

    Attributes:
        observed: the policy's input, ``obs`` [T+1, O] and ``entries``; the last one is after the last step.
        acted: of its steps, ``action`` [T, A], ``reward`` [T] and ``terminated`` [T].
    """

    observed: TensorDict
    acted: TensorDict
    is_success: bool


def play_expert(env: EmbodiedEnv, num_episodes: int, keys: Sequence[str], seed: int) -> list[ExpertEpisode]:
    """Let the scripted expert play the first episodes of a seed to their ends, whatever N is.

    Args:
        env: has ``expert_action() -> [N, A]``.
        keys: the entries of the observation that the policy reads.
    """
    having_one: Any = env
    obs, _ = env.reset(seed=seed, options={"enumerate_episodes": True})
    number = torch.arange(env.num_envs, device=env.device)  # of each environment's episode
    running: list[list[tuple[TensorDict, TensorDict]]] = [[] for _ in range(env.num_envs)]
    episodes: dict[int, ExpertEpisode] = {}
    while len(episodes) < num_episodes:
        observed = _input(obs, keys)
        action = env.take_action(having_one.expert_action())
        obs, reward, terminated, truncated, info = env.step(action)
        acted = TensorDict({"action": action, "reward": reward, "terminated": terminated}, batch_size=[env.num_envs])
        for i, steps in enumerate(running):
            steps.append((observed[i], acted[i].clone()))
        done = terminated | truncated
        if not done.any():
            continue
        final = _input(info["final_obs"], keys)
        for i in done.nonzero().squeeze(1).tolist():
            if number[i] < num_episodes:
                episodes[int(number[i])] = _episode(running[i], final[i], bool(info["success"][i]))
            running[i] = []
            number[i] += env.num_envs
    return [episodes[i] for i in sorted(episodes)]


def _input(obs: TensorDict, keys: Sequence[str]) -> TensorDict:
    """Return the policy's input, [N]; nothing in it is changed later."""
    given = TensorDict({"obs": flat_input(obs)}, batch_size=obs.batch_size)
    if keys:
        given["entries"] = select_entries(obs, keys).clone()
    return given


def _episode(steps: list[tuple[TensorDict, TensorDict]], final: TensorDict, is_success: bool) -> ExpertEpisode:
    observed, acted = zip(*steps, strict=True)
    return ExpertEpisode(TensorDict.stack((*observed, final)), TensorDict.stack(acted), is_success)
