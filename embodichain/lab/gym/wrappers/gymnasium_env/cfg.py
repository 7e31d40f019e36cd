"""The config of a Gymnasium environment: ``{"id": "gymnasium:HalfCheetah-v5", "num_envs": 8}``."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PositiveInt

from embodichain.utils import configclass
from embodichain.utils.configclass import MayChange, replace, to_dict

PREFIX = "gymnasium:"
"""Of the ids of Gymnasium's environments in our configs."""
RENDER_MODE = "rgb_array"
"""``render_mode`` of environments that make images."""
OWN_FORM = "vector_entry_point"
"""``vectorization`` by the environment's own vector form."""

GYMNASIUM_KEYS = ("id", "kwargs", "num_envs", "vectorization", "max_episode_steps")
"""The keys of the config's file."""


@configclass
class GymnasiumEnvCfg:
    """The config of a Gymnasium environment; its methods are those of ``EmbodiedEnvCfg``."""

    id: str
    """``"gymnasium:HalfCheetah-v5"``; with a package that registers it, ``"gymnasium:package:Name-v0"``."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment's constructor. With ``"render_mode": "rgb_array"`` evaluations record videos."""
    num_envs: PositiveInt = 1
    """Environments that step side by side."""
    vectorization: MayChange[Literal["sync", "async", "vector_entry_point"]] = "sync"
    """``"sync"``: one after the other; ``"async"``: each in a process of its own; ``"vector_entry_point"``: by the
    environment's own vector form."""
    max_episode_steps: PositiveInt | None = None
    """Time limit in steps; null: the registered one."""
    seed: int = 1
    """Of the episodes' seeds. A training has its own."""
    group_size: Annotated[int, Field(ge=1)] = 1
    """Environments of the same i // group_size begin equal episodes. A training takes it from the algorithm."""
    first_env_id: Annotated[int, Field(ge=0)] = 0
    """Global id of the first environment. A training sets it."""
    records: bool = True
    """Whether ``start_recording`` records a video, where there are images."""

    def for_run(self, seed: int, num_envs: int, **simulation: Any) -> GymnasiumEnvCfg:
        """Return the config of a run's environments, which have no simulation of ours."""
        return replace(self, seed=seed, num_envs=num_envs)

    def for_training(self, events: dict[str, Any], group_size: int) -> GymnasiumEnvCfg:
        """Return the config of a training, which records no videos and has no events."""
        return replace(self.without_records(), group_size=group_size)

    def for_evaluation(self, events: dict[str, Any], num_envs: int) -> GymnasiumEnvCfg:
        """Return the config with an evaluation's number of environments."""
        return replace(self, num_envs=num_envs)

    def for_process(self, num_envs: int, first_env_id: int, num_threads: int, device: torch.device) -> GymnasiumEnvCfg:
        """Return the config of one of several processes."""
        return replace(self, num_envs=num_envs, first_env_id=first_env_id)

    def without_records(self) -> GymnasiumEnvCfg:
        """Return the config without videos; the environment may need its ``render_mode`` for what it observes."""
        return replace(self, records=False)

    def with_images(self) -> GymnasiumEnvCfg:
        """Return the config of environments that make images, for others to record."""
        return replace(self, kwargs=self.kwargs | {"render_mode": RENDER_MODE}, records=False)


def file_data(cfg: GymnasiumEnvCfg) -> dict[str, Any]:
    """Return the content of a file that is parsed to the same config."""
    values = to_dict(cfg)
    return {key: values[key] for key in GYMNASIUM_KEYS if values[key] is not None}
