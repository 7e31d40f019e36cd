"""The environment's interface for terms and managers. Shapes: N environments, A action size."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from gymnasium import spaces
from torch import Tensor

from embodichain.lab.sim import SimulationManager
from embodichain.lab.sim.objects import Robot, StateCache
from embodichain.utils.output import OutputFolder
from embodichain.utils.random import CounterRandom


class _Actions(Protocol):
    @property
    def total_action_dim(self) -> int: ...


class _Events(Protocol):
    @property
    def steps(self) -> int: ...


class _Commands(Protocol):
    def get_command(self, name: str) -> Tensor: ...

    def get_tracked(self, name: str) -> Tensor: ...

    def get_term(self, name: str) -> Any: ...


class TermEnv(Protocol):
    """The attributes of every :class:`~embodichain.lab.gym.envs.EmbodiedEnv`; tasks add their own."""

    cfg: Any
    """An ``EmbodiedEnvCfg``."""
    num_envs: int
    """N."""
    device: torch.device
    """Device of all tensors."""
    sim: SimulationManager
    """The scene."""
    robot: Robot
    """The robot that acts."""
    active_part: str | None
    """The control part that actions move by default; None: all joints."""
    active_joint_ids: list[int]
    """The joints of that part."""
    random: CounterRandom
    """Random streams of the environments: the only source of random numbers."""
    all_env_ids: Tensor
    """[N] int64: 0 to N - 1."""
    stepping_ids: Tensor
    """[n] int64: the environments that make the present control step; all, but within a chunk of actions."""
    elapsed_steps: Tensor
    """[N] int64: steps in the current episode."""
    last_action: Tensor
    """[N, A]: the action of the present step, within its limits."""
    output: OutputFolder
    """The folder for files."""
    single_observation_space: spaces.Dict
    """Space of one environment; not there yet when the terms are built."""

    @property
    def state_cache(self) -> StateCache:
        """Cached values of the present state, see :func:`~embodichain.lab.sim.objects.cached_per_state`."""
        ...

    @property
    def step_dt(self) -> float:
        """Duration of a control step, s."""
        ...

    @property
    def action_manager(self) -> _Actions:
        """The :class:`~embodichain.lab.gym.envs.managers.ActionManager`."""
        ...

    @property
    def command_manager(self) -> _Commands:
        """The :class:`~embodichain.lab.gym.envs.managers.CommandManager`."""
        ...

    @property
    def event_manager(self) -> _Events:
        """The :class:`~embodichain.lab.gym.envs.managers.EventManager`."""
        ...

    def choose(self, mask: Tensor) -> AbstractContextManager[Tensor]:
        """Change only the rows of a mask [N] bool inside the block; yields the ``env_ids`` to compute with."""
        ...

    def config_data(self) -> dict[str, Any]:
        """Return the environment's config as the content of a file."""
        ...

    def instructions(self) -> list[str]:
        """Return each environment's task in words, N of them."""
        ...
