"""The config of a Gymnasium environment: ``{"id": "gymnasium:HalfCheetah-v5", "num_envs": 8}``."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt

from embodichain.utils import configclass
from embodichain.utils.configclass import MayChange

PREFIX = "gymnasium:"
"""Of the ids of Gymnasium's environments in our configs."""


@configclass
class GymnasiumEnvCfg:
    """The config of a Gymnasium environment."""

    id: str
    """``"gymnasium:HalfCheetah-v5"``; with a package that registers it, ``"gymnasium:package:Name-v0"``."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment's constructor."""
    num_envs: PositiveInt = 1
    """Environments that step side by side."""
    vectorization: MayChange[Literal["sync", "async", "vector_entry_point"]] = "sync"
    """How: one after the other; each in a process of its own; or by the environment's own vector form."""
    max_episode_steps: PositiveInt | None = None
    """Time limit in steps; null: the registered one."""
    seed: int = 1
    """Of the episodes' seeds; a training takes its own."""
    group_size: Annotated[int, Field(ge=1)] = 1
    """Environments of the same i // group_size begin equal episodes. A training takes it from the algorithm."""
    first_env_id: Annotated[int, Field(ge=0)] = 0
    """Global id of the first environment; a training sets it."""
