"""A Gymnasium environment in which every observation, reward and flag is known beforehand. Legend: N envs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from embodichain.ext.gymnasium.gymnasium_env import GymnasiumEnv, GymnasiumEnvCfg

# Episodes last 3 steps in env 0, 2 in env 1, 4 in env 2, 1 in env 3.
LENGTHS = (3, 2, 4, 1)
TRUNCATES = (True, False, True, True)
TERMINATES = (False, True, True, False)  # env 2 is both at once
NUM_ENVS = len(LENGTHS)


class ScriptedEnv(gym.Env[Any, Any]):
    """Env n shows (1000 n + 100 episode + t, last action) at step t; its reward is the first of these, less 0.5."""

    numbers = count()
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 5.0]), dtype=np.float64)

    def __init__(self) -> None:
        self.number = next(self.numbers) % NUM_ENVS
        self.episode = -1
        self.t = 0
        self.seeds: list[int | None] = []
        self.actions: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.t = 0
        self.seeds.append(seed)
        return self._obs(0.0), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.t < LENGTHS[self.number], "the episode is over: reset() was due"
        self.t += 1
        self.actions.append(action.copy())
        is_last = self.t == LENGTHS[self.number]
        obs = self._obs(float(action[0]))
        flags = (is_last and TERMINATES[self.number], is_last and TRUNCATES[self.number])
        return obs, float(obs[0] - 0.5), *flags, {"is_success": is_last and self.number == 1}

    def _obs(self, last: float) -> np.ndarray:
        return np.array([1000.0 * self.number + 100.0 * self.episode + self.t, last])


class SayingEnv(gym.Env[Any, Any]):
    """Shows 0 and pays ``reward`` in each step; ``says`` returns the info of a step by its number, from 1."""

    observation_space = action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, reward: Any = 1.0, says: Callable[[int], dict[str, Any]] = lambda t: {}) -> None:
        self.reward, self.says, self.t = reward, says, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.zeros(1, np.float32), self.reward, False, False, self.says(self.t)


@contextmanager
def registered(name: str = "Scripted-v0", entry_point: Any = ScriptedEnv, **kwargs: Any) -> Iterator[None]:
    """Register an environment with Gymnasium inside the block."""
    gym.register(name, entry_point, disable_env_checker=True, **kwargs)
    try:
        yield
    finally:
        del gym.registry[name]


@contextmanager
def scripted(num_envs: int = NUM_ENVS, **settings: Any) -> Iterator[GymnasiumEnv]:
    """Yield scripted environments."""
    ScriptedEnv.numbers = count()
    with registered():
        env = GymnasiumEnv(GymnasiumEnvCfg("gymnasium:Scripted-v0", num_envs=num_envs, **settings))
        yield env
        env.close()
