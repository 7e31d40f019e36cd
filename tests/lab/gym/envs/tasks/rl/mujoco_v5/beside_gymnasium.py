"""Our task beside Gymnasium's own environment: the same first states and actions. Shapes: N environments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import torch

from embodichain.lab.gym.envs import SceneEnv
from tests.lab.scenes import env_of


@dataclass
class Differences:
    """The largest differences over a run: |a - b| / (1 + |b|); and what happened in it."""

    obs: float = 0.0
    reward: float = 0.0
    terminated: int = 0
    truncated: int = 0


def drive(task: str, steps: int, num_envs: int = 2, **arguments: Any) -> Differences:
    """Step both with random actions; Gymnasium's starts each episode in the state of our environment 0.

    Args:
        task: the name before ``V5RL`` and ``-v5``.
        num_envs: of ours; the others are there to be reset at other times.
        arguments: of the task, for both.
    """
    env = env_of({"id": f"{task}V5RL", "env": {"extensions": arguments}}, num_envs)
    assert isinstance(env, SceneEnv)
    theirs: Any = gym.make(f"{task}-v5", disable_env_checker=True, **arguments).unwrapped
    limit = gym.spec(f"{task}-v5").max_episode_steps
    random = np.random.default_rng(0)
    found = Differences()

    def compare(ours: torch.Tensor, wanted: np.ndarray) -> None:
        found.obs = max(found.obs, float((np.abs(ours.numpy() - wanted) / (1 + np.abs(wanted))).max()))

    def begin(obs: Any) -> int:
        mujoco.mj_resetData(theirs.model, theirs.data)
        theirs.set_state(env.qpos[0].numpy(), env.qvel[0].numpy())
        compare(obs["observation"][0], theirs._get_obs())
        return 0

    obs, _ = env.reset(seed=1)
    theirs.reset(seed=1)
    length = begin(obs)
    space = env.single_action_space
    assert (space.low == theirs.action_space.low).all()
    assert (space.high == theirs.action_space.high).all()
    for _ in range(steps):
        actions = random.uniform(space.low, space.high, (num_envs, *space.shape)).astype(np.float32)
        obs, reward, terminated, truncated, info = env.step(torch.from_numpy(actions))
        their_obs, their_reward, their_end, _, _ = theirs.step(actions[0])
        length += 1
        compare(info["final_obs"]["observation"][0], their_obs)
        found.reward = max(found.reward, abs(float(reward[0]) - their_reward) / (1 + abs(their_reward)))
        assert bool(terminated[0]) == their_end
        assert bool(truncated[0]) == (length == limit)
        if terminated[0] or truncated[0]:
            found.terminated += int(terminated[0])
            found.truncated += int(truncated[0])
            length = begin(obs)
    theirs.close()
    env.close()
    return found
