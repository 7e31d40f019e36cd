"""The registry of environments, ours and Gymnasium's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import gymnasium as gym

from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from embodichain.utils.errors import unknown_name

__all__ = ["EnvSpec", "find_env_class", "get_env_spec", "get_registered_env_ids", "make", "register_env"]

T = TypeVar("T", bound=type)


@dataclass(frozen=True)
class EnvSpec:
    """A registered environment.

    Attributes:
        env_id: its name.
        cls: the class, built as ``cls(cfg)``.
        max_episode_steps: time limit where the config gives none; None: no limit.
    """

    env_id: str
    cls: type
    max_episode_steps: int | None


_REGISTRY: dict[str, EnvSpec] = {}


def register_env(env_id: str, max_episode_steps: int | None = None, override: bool = False) -> Callable[[T], T]:
    """Register the decorated environment class with our registry and with Gymnasium.

    Args:
        env_id: the name by which configs ask for it.
        max_episode_steps: time limit where the config gives none.
        override: replace one of the same name.

    Raises:
        ValueError: the name is taken and ``override`` is false.
    """

    def register(cls: T) -> T:
        if env_id in _REGISTRY and not override:
            raise ValueError(f"environment '{env_id}' is registered already; pass override=True to replace it")
        _REGISTRY[env_id] = EnvSpec(env_id, cls, max_episode_steps)
        # Our environments are batched, check their own time limit and reset themselves: Gymnasium's wrappers for
        # single environments would get in the way.
        gym.registry.pop(env_id, None)
        entry_point = cast(Any, functools.partial(make, env_id))
        gym.register(id=env_id, entry_point=entry_point, disable_env_checker=True, order_enforce=False)
        return cls

    return register


def get_registered_env_ids() -> list[str]:
    """Return the names of all registered environments."""
    return sorted(_REGISTRY)


def get_env_spec(env_id: str) -> EnvSpec:
    """Return a registered environment.

    Raises:
        ConfigError: no such name; the message lists the known ones.
    """
    if env_id not in _REGISTRY:
        raise ConfigError(unknown_name("environment id", env_id, _REGISTRY))
    return _REGISTRY[env_id]


def find_env_class(env_id: object) -> type | None:
    """Return the class of a registered environment, or None where there is none of that name."""
    return _REGISTRY[env_id].cls if isinstance(env_id, str) and env_id in _REGISTRY else None


def make(env_id: str, **kwargs: Any) -> Any:
    """Build a registered environment: ``make("PushCubeRL", cfg=cfg)``.

    A ``cfg`` without ``max_episode_steps`` gets the registered one.
    """
    spec = get_env_spec(env_id)
    cfg = kwargs.get("cfg")
    if spec.max_episode_steps is not None and getattr(cfg, "max_episode_steps", 0) is None:
        kwargs["cfg"] = replace(cfg, max_episode_steps=spec.max_episode_steps)
    return spec.cls(**kwargs)
