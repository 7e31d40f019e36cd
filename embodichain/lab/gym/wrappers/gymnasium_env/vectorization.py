"""N Gymnasium environments as one of Gymnasium's vector environments."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from embodichain.lab.gym.wrappers.gymnasium_env.autoreset import VectorEnv
from embodichain.lab.gym.wrappers.gymnasium_env.cfg import OWN_FORM, GymnasiumEnvCfg
from embodichain.lab.gym.wrappers.gymnasium_env.member import MakeMember
from embodichain.lab.gym.wrappers.gymnasium_env.registry import find_spec, with_python
from embodichain.utils import ConfigError
from embodichain.utils.module_search import folders_on_path, import_folders
from embodichain.utils.system import worker_start_method

_PRELOAD = "embodichain.lab.gym.wrappers.gymnasium_env.member"


def make_vector_env(cfg: GymnasiumEnvCfg) -> VectorEnv:
    """Build the vector environment of a config. Gymnasium's own reset nothing by themselves; see ``SameStepReset``.

    Raises:
        ConfigError: the constructor does not take ``kwargs``, or something that it needs is not installed.
    """
    spec = find_spec(cfg.id)
    folders = import_folders([_entry_module(spec)])
    limit: dict[str, Any] = {} if cfg.max_episode_steps is None else {"max_episode_steps": cfg.max_episode_steps}
    members = [MakeMember(spec, cfg.kwargs, cfg.max_episode_steps, i, folders) for i in range(cfg.num_envs)]
    with _building(cfg), folders_on_path(folders):
        if cfg.vectorization == OWN_FORM:
            return gym.make_vec(spec, cfg.num_envs, cfg.vectorization, **limit, **cfg.kwargs)
        if cfg.vectorization == "sync":
            return SyncVectorEnv(members, copy=False, autoreset_mode=AutoresetMode.DISABLED)
        method = worker_start_method([_PRELOAD])
        return AsyncVectorEnv(members, copy=False, context=method, autoreset_mode=AutoresetMode.DISABLED)


def _entry_module(spec: EnvSpec) -> str:
    """Return the module that has an environment's class."""
    entry = spec.entry_point
    return entry.partition(":")[0] if isinstance(entry, str) else str(getattr(entry, "__module__", ""))


@contextmanager
def _building(cfg: GymnasiumEnvCfg) -> Iterator[None]:
    """Turn what a constructor raises for wrong arguments or missing packages into a ConfigError of one line."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{cfg.id}: {error}") from error
    except (gym.error.Error, AssertionError, ImportError, LookupError, OSError, TypeError, ValueError) as error:
        kwargs: Any = f" with the kwargs {cfg.kwargs}" if cfg.kwargs else ""
        last = traceback.extract_tb(error.__traceback__)[-1]
        reason = with_python(" ".join(str(error).split())) or f"{last.filename}, line {last.lineno}"
        if isinstance(error, TypeError) and "render_mode" in cfg.kwargs:
            reason += "; images need an environment whose constructor takes render_mode"
        raise ConfigError(f"{cfg.id}: cannot be built{kwargs}: {type(error).__name__}: {reason}") from error
