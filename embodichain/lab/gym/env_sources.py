"""Environments of other libraries, by their ids: the door ``env_sources``."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import torch

from embodichain.lab.gym.envs.managers.checks import SceneNames
from embodichain.utils import doors


class TaskCfg(Protocol):
    """The config of N environments to learn in, of ours or of another library: a dataclass for ``replace``."""

    num_envs: int
    """N."""
    seed: int
    """Seed of the random streams."""
    first_env_id: int
    """Global id of the first environment."""
    group_size: int
    """Environments that begin equal episodes."""
    max_episode_steps: int | None
    """Time limit, steps; None: the registered one, or none."""

    def for_run(self, seed: int, num_envs: int, **simulation: Any) -> Self:
        """Return the config of a run's environments; ``simulation`` has settings of a simulation of ours."""

    def for_training(self, events: dict[str, Any], group_size: int) -> Self:
        """Return the config with a training's further events, and with its algorithm's groups."""

    def for_evaluation(self, events: dict[str, Any], num_envs: int) -> Self:
        """Return the config with an evaluation's further events and number of environments."""

    def for_process(self, num_envs: int, first_env_id: int, num_threads: int, device: torch.device) -> Self:
        """Return the config of one of several processes."""

    def without_records(self) -> Self:
        """Return the config without writers of files."""

    def with_images(self) -> Self:
        """Return the config of environments of which images can be made."""


Cfg = TypeVar("Cfg", bound=TaskCfg)


@dataclass(frozen=True)
class ParsedTask(Generic[Cfg]):
    """The config of environments, typed and checked."""

    cfg: Cfg
    """The typed config, without wrong values."""
    env_id: str | None
    """Registered name of the task, or id of another library's; None: it is unknown."""
    time_limit: int | None
    """Limit of episodes, steps; None if there is none."""
    problems: list[str]
    """Mistakes, one per line."""
    data: Callable[[], dict[str, Any]]
    """Getter of the content of a file that is parsed to the same config; the task is known."""
    names: SceneNames = field(default_factory=SceneNames)
    """Names that terms may have in its scene."""


class EnvSource(ABC):
    """A library's environments, without a scene of ours. An entry point of ``env_sources`` names an instance."""

    prefix: ClassVar[str]
    """Beginning of its ids in configs: ``"gymnasium:"``."""
    cfg_class: ClassVar[type[Any]]
    """Config class, a ``TaskCfg`` that ``configclass`` decorates."""
    keys: ClassVar[tuple[str, ...]]
    """Keys of the config's file."""

    def claims(self, env_id: object) -> bool:
        """Return whether an id of a config is one of these environments."""
        return isinstance(env_id, str) and env_id.startswith(self.prefix)

    @abstractmethod
    def parse(self, data: Mapping[str, Any], allowed_imports: Sequence[str]) -> ParsedTask[Any]:
        """Turn the data of a config with such an id into a typed one and check it; nothing is built.

        The data may name modules below ``allowed_imports``.
        """

    @abstractmethod
    def build(self, cfg: Any) -> Any:
        """Build the environments of a config: a ``VecEnv`` that a training can write into and close."""

    def suggested_id(self, env_id: str) -> str | None:
        """Return the whole id of one of these environments that was named without the prefix, or None."""
        return None

    def problems_beside_updates(self, cfg: Any) -> list[str]:
        """Return why the environments cannot step in a thread during the updates, one per line."""
        return []


@cache
def env_sources() -> tuple[EnvSource, ...]:
    """Return all sources of environments but our own registry."""
    return tuple(doors.load_all(doors.ENV_SOURCES).values())


def find_source(env_id: object) -> EnvSource | None:
    """Return the source of an environment; None: our own registry."""
    return next((source for source in env_sources() if source.claims(env_id)), None)
