"""The registry of environments, ours and Gymnasium's."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

import gymnasium as gym

from embodichain.utils import ConfigError, doors, replace, unknown_name

T = TypeVar("T", bound=type)


@dataclass(frozen=True)
class EnvSpec:
    """A registered environment."""

    env_id: str
    cls: type
    """Built as ``cls(cfg)``."""
    max_episode_steps: int | None
    """Time limit where the config gives none; None: no limit."""
    default_cfg: Callable[[], Any] | None = None
    """Maker of the default config; None: there is none."""


_REGISTRY: dict[str, EnvSpec] = {}


def register_env(
    env_id: str,
    max_episode_steps: int | None = None,
    override: bool = False,
    default_cfg: Callable[[], Any] | None = None,
) -> Callable[[T], T]:
    """Register the decorated environment class with our registry and with Gymnasium.

    Args:
        max_episode_steps: time limit where the config gives none.
        default_cfg: makes the config for ``gym.make(env_id)``, where none is given; a ``ConfigFile`` also completes an
            environment's config inside a training config.
    """

    def register(cls: T) -> T:
        if not override and (env_id in _REGISTRY or env_id in gym.registry):
            raise ValueError(f"environment '{env_id}' is registered already; pass override=True to replace it")
        _REGISTRY[env_id] = EnvSpec(env_id, cls, max_episode_steps, default_cfg)
        # Our environments are batched, check their own time limit and reset themselves: Gymnasium's wrappers for
        # single environments would get in the way.
        gym.registry.pop(env_id, None)
        gym.register(
            id=env_id,
            entry_point=f"{__name__}:make",
            vector_entry_point="embodichain.ext.gymnasium.vector_env:make_vec",
            kwargs={"env_id": env_id},
            disable_env_checker=True,
            order_enforce=False,
        )
        return cls

    return register


def get_registered_env_ids() -> list[str]:
    """Return the names of all registered environments."""
    return sorted({*_REGISTRY, *doors.entries(doors.TASKS)})


def get_env_spec(env_id: str) -> EnvSpec:
    """Return a registered environment; ConfigError with the known ones where there is none of that name."""
    spec = find_env_spec(env_id)
    if spec is None:
        unknown = unknown_name("environment id", env_id, get_registered_env_ids())
        raise ConfigError(f"{unknown}. Your own are known once imported: trainer.import_modules, or --import")
    return spec


def find_env_spec(env_id: object) -> EnvSpec | None:
    """Return a registered environment, or None where there is none of that name."""
    if not isinstance(env_id, str):
        return None
    if env_id not in _REGISTRY:
        import_module("embodichain.lab.gym.envs.tasks.rl")  # the shipped tasks
        doors.load(doors.TASKS, env_id)
    return _REGISTRY.get(env_id)


def find_env_id(env_class: type) -> str | None:
    """Return the name that a class is registered by, or None."""
    return next((env_id for env_id, spec in _REGISTRY.items() if spec.cls is env_class), None)


def make(env_id: str, cfg: Any = None, num_envs: int | None = None, **kwargs: Any) -> Any:
    """Build a registered environment: ``make("PushCubeRL", num_envs=64)``. ``gym.make`` calls this.

    Args:
        cfg: task's config; None: the task's own. A missing ``max_episode_steps`` is the registered one.
        num_envs: replaces the config's.
    """
    spec = get_env_spec(env_id)
    if cfg is None:
        if spec.default_cfg is None:
            raise ConfigError(f"environment '{env_id}' has no config of its own: pass cfg=config_to_cfg(...)")
        cfg = spec.default_cfg()
    changes: dict[str, Any] = {} if num_envs is None else {"num_envs": num_envs}
    if spec.max_episode_steps is not None and cfg.max_episode_steps is None:
        changes["max_episode_steps"] = spec.max_episode_steps
    return spec.cls(replace(cfg, **changes) if changes else cfg, **kwargs)
