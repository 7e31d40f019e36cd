"""The configs of other libraries' environments: ``{"id": "gymnasium:HalfCheetah-v5", "num_envs": 8}``."""

import importlib
import os
from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Any, Literal, Self

import gymnasium as gym
import torch
from gymnasium.envs.registration import EnvSpec
from pydantic import Field, PositiveInt

from embodichain.lab.gym.registry import find_env_spec
from embodichain.utils import ConfigError, MayChange, configclass, nearest, replace
from embodichain.utils.module_utils import folders_on_path, import_allowed_modules, import_folders

RENDER_MODE = "rgb_array"
"""``render_mode`` of environments that make images."""


@configclass
class ForeignEnvCfg:
    """The config of N environments of another library; its methods are those of ``TaskCfg``."""

    id: str
    """``"gymnasium:HalfCheetah-v5"``, ``"envpool:HopperHop-v1"``; with a package that registers it,
    ``"gymnasium:package:Name-v0"``."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment's constructor. With ``"render_mode": "rgb_array"`` evaluations record videos."""
    num_envs: PositiveInt = 1
    """Environments that step side by side."""
    max_episode_steps: PositiveInt | None = None
    """Time limit in steps; null: the registered one."""
    seed: int = 1
    """Seed of the episodes' seeds. A training has its own."""
    group_size: Annotated[int, Field(ge=1)] = 1
    """Environments of the same i // group_size begin equal episodes. A training takes it from the algorithm."""
    first_env_id: Annotated[int, Field(ge=0)] = 0
    """Global id of the first environment. A training sets it."""
    records: bool = True
    """Whether ``start_recording`` records a video, where there are images."""

    def for_run(self, seed: int, num_envs: int, **simulation: Any) -> Self:
        """Return the config of a run's environments, which have no simulation of ours."""
        return replace(self, seed=seed, num_envs=num_envs)

    def for_training(self, events: dict[str, Any], group_size: int) -> Self:
        """Return the config of a training, which records no videos and has no events."""
        return replace(self.without_records(), group_size=group_size)

    def for_evaluation(self, events: dict[str, Any], num_envs: int) -> Self:
        """Return the config with an evaluation's number of environments."""
        return replace(self, num_envs=num_envs)

    def for_process(self, num_envs: int, first_env_id: int, num_threads: int, device: torch.device) -> Self:
        """Return the config of one of several processes."""
        return replace(self, num_envs=num_envs, first_env_id=first_env_id)

    def without_records(self) -> Self:
        """Return the config without videos; the environment may need its ``render_mode`` for its observations."""
        return replace(self, records=False)

    def with_images(self) -> Self:
        """Return the config of environments that make images, for others to record."""
        return replace(self, kwargs=self.kwargs | {"render_mode": RENDER_MODE}, records=False)


@configclass
class GymnasiumEnvCfg(ForeignEnvCfg):
    """The config of Gymnasium's environments."""

    vectorization: MayChange[Literal["sync", "async"]] = "sync"
    """``"sync"``: one after the other; ``"async"``: each in a process of its own. Images are made by ``"sync"``."""

    def for_evaluation(self, events: dict[str, Any], num_envs: int) -> Self:
        """Return the config with an evaluation's number of environments; with images in this process."""
        changes = {"vectorization": "sync"} if "render_mode" in self.kwargs else {}
        return replace(self, num_envs=num_envs, **changes)

    def with_images(self) -> Self:
        """Return the config of environments that make images, for others to record."""
        return replace(super().with_images(), vectorization="sync")


@configclass
class EnvPoolCfg(ForeignEnvCfg):
    """The config of EnvPool's environments."""

    num_threads: int = 0
    """Threads of the pool; 0: EnvPool's own number. A training in several processes shares the processor."""

    def for_process(self, num_envs: int, first_env_id: int, num_threads: int, device: torch.device) -> Self:
        """Return the config of one of several processes."""
        return replace(self, num_envs=num_envs, first_env_id=first_env_id, num_threads=num_threads)


PREFIX = "gymnasium:"


def check_gymnasium_id(env_id: str, allowed_imports: Sequence[str]) -> EnvSpec:
    """Return what Gymnasium has registered for the id of a config, after importing the package that it names.

    Args:
        allowed_imports: prefixes of the packages that it may name.
    """
    module, _ = _parts(env_id)
    if module:
        import_allowed_modules([module], allowed_imports, "id")
    return find_spec(env_id)


def find_spec(env_id: str) -> EnvSpec:
    """Return what Gymnasium has registered for the id of a checked config."""
    module, name = _parts(env_id)
    if module:
        with folders_on_path([os.getcwd()]):
            importlib.import_module(module)
    if find_env_spec(name) is not None:
        raise ConfigError(
            f"id: '{name}' is EmbodiChain's own environment: write \"id\": \"{name}\", without '{PREFIX}'"
        )
    spec = gym.registry.get(name)
    if spec is None:
        hint = "" if module else f" If a package registers it, write '{PREFIX}<package>:{name}'"
        raise ConfigError(f"id: Gymnasium has no environment '{name}'.{nearest(name, gym.registry)}{hint}")
    return spec


def entry_folders(env_id: str, spec: EnvSpec) -> list[str]:
    """Return the folders of the imported modules that an id names and that have its class.

    The user allowed them. The working directory is not among them for others, whose missing packages a file there would
    replace.
    """
    entry = spec.entry_point
    module = entry.partition(":")[0] if isinstance(entry, str) else str(getattr(entry, "__module__", ""))
    return import_folders([_parts(env_id)[0], module])


def _parts(env_id: str) -> tuple[str, str]:
    """Return the package that an id names, or "", and the name of the environment."""
    module, _, name = env_id.removeprefix(PREFIX).rpartition(":")
    return module, name
