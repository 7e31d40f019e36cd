"""Recorded episodes played again. Shapes: N environments, A action size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import torch
from typing_extensions import override

from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.record import Trajectory


class ReplayEnv(gym.Wrapper[Any, Any, Any, Any]):
    """Replays one episode of ``record_trajectory``: the same random draws and actions, so the same states.

    The episode is that of environment ``trajectory.env_id``; the others rest.

    Attributes:
        trajectory: the episode.
    """

    env: EmbodiedEnv

    def __init__(self, env: EmbodiedEnv, path: str | Path) -> None:
        """Read a trajectory.

        Args:
            env: built from the config of the recording.

        Raises:
            ValueError: the file is not a trajectory, or not one of such an environment.
            OSError: there is no such file.
        """
        super().__init__(env)
        self.trajectory = Trajectory.load(Path(path))
        self._step = 0
        size, width = env.action_manager.total_action_dim, self.trajectory.action.shape[1]
        if width != size:
            raise ValueError(f"{path}: has actions of {width} numbers, the environment takes {size}")
        if self.trajectory.env_id >= env.num_envs:
            needed = self.trajectory.env_id + 1
            raise ValueError(f"{path}: is of environment {needed - 1}: {needed} are needed, got {env.num_envs}")

    @property
    def num_steps(self) -> int:
        """Steps of the episode."""
        return len(self.trajectory.action)

    @override
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Go back to the episode's beginning; the arguments are not used."""
        env, episode = self.env, self.trajectory
        env.reset(seed=episode.seed)
        env.random.stream_ids[episode.env_id] = episode.stream_id
        env.random.episode[episode.env_id] = episode.episode - 1  # the reset continues with the next one
        env.event_manager.restart(episode.tick)
        self._step = 0
        return env.reset(options={"reset_ids": [episode.env_id]})

    @override
    def step(self, action: Any = None) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take the episode's next action; the argument is not used.

        Raises:
            RuntimeError: the episode is over.
        """
        if self._step == self.num_steps:
            raise RuntimeError(f"the episode of {self.num_steps} steps is over: call reset()")
        actions = torch.zeros(self.env.num_envs, self.trajectory.action.shape[1], device=self.env.device)
        actions[self.trajectory.env_id] = torch.from_numpy(self.trajectory.action[self._step])
        self._step += 1
        return self.env.step(actions)
