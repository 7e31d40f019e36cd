"""From the environment's config file to its typed config."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

from embodichain.lab.gym.envs.embodied_env import EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers.cfg import EventCfg
from embodichain.utils import ConfigError
from embodichain.utils.errors import nearest, unknown_name
from embodichain.utils.module_utils import find_function_from_modules, public_names
from embodichain.utils.validation import from_dict

__all__ = ["DEFAULT_MANAGER_MODULES", "config_to_cfg", "events_to_cfg"]

_MANAGERS = "embodichain.lab.gym.envs.managers"
DEFAULT_MANAGER_MODULES = [
    f"{_MANAGERS}.{name}" for name in ("actions", "observations", "rewards", "randomization", "record", "datasets")
]
"""Where functors named in configs are looked up, in this order."""

_TERM_BLOCKS = ("actions", "observations", "rewards", "events", "dataset")
_SCENE_KEYS = ("robot", "rigid_object", "rigid_object_group", "background", "articulation", "sensor", "light")
_TOP_KEYS = ("id", "max_episodes", "max_episode_steps", "num_envs", "env", *_SCENE_KEYS)


def config_to_cfg(data: dict[str, Any], manager_modules: Sequence[str] = DEFAULT_MANAGER_MODULES) -> EmbodiedEnvCfg:
    """Turn a parsed environment config into a typed one.

    Args:
        data: the file's content.
        manager_modules: where functors are looked up.

    Raises:
        ConfigError: with every error found, a line each.
    """
    errors = [f"{key}: unknown key.{nearest(key, _TOP_KEYS)}" for key in data if key not in _TOP_KEYS]
    env = data.get("env", {})
    if not isinstance(env, dict):
        raise ConfigError(f"env: must be an object, got {env!r}")
    flat = {key: value for key, value in env.items() if key not in _TERM_BLOCKS}
    flat |= {key: data[key] for key in (*_SCENE_KEYS, "max_episode_steps", "num_envs") if key in data}
    for block in _TERM_BLOCKS:
        flat[block] = _resolve_functors(env.get(block, {}), f"env.{block}", manager_modules, errors)
    try:
        cfg = from_dict(EmbodiedEnvCfg, flat, "")
    except ConfigError as error:
        errors += [line if re.split(r"[.\[:]", line)[0] in data else f"env.{line}" for line in str(error).splitlines()]
    if errors:
        raise ConfigError("\n".join(errors))
    return cfg


def events_to_cfg(
    block: dict[str, Any], place: str, manager_modules: Sequence[str] = DEFAULT_MANAGER_MODULES
) -> dict[str, EventCfg]:
    """Turn a block of events by name into typed configs.

    Args:
        block: the config's content.
        place: where it stands, for messages.
        manager_modules: where functors are looked up.

    Raises:
        ConfigError: with every error found, a line each.
    """
    errors: list[str] = []
    events: dict[str, EventCfg] = {}
    for name, term in _resolve_functors(block, place, manager_modules, errors).items():
        try:
            events[name] = from_dict(EventCfg, term, f"{place}.{name}")
        except ConfigError as error:
            errors += str(error).splitlines()
    if errors:
        raise ConfigError("\n".join(errors))
    return events


def _resolve_functors(block: Any, place: str, modules: Sequence[str], errors: list[str]) -> Any:
    """Replace the functors' names by the functions; unknown ones are added to ``errors``."""
    if not isinstance(block, dict):
        return block
    resolved = {}
    for name, term in block.items():
        resolved[name] = term
        func = term.get("func") if isinstance(term, dict) else None
        if isinstance(func, str):
            module = func.rpartition(".")[0]
            if module and module not in sys.modules:
                # Importing runs code, and what code runs is not for a config file to choose.
                errors.append(f"{place}.{name}.func: module '{module}' of '{func}' must be imported first")
                continue
            found = find_function_from_modules(func, modules, raise_if_not_found=False)
            if found is None:
                errors.append(f"{place}.{name}.func: {unknown_name('function', func, public_names(modules))}")
            else:
                resolved[name] = term | {"func": found}
    return resolved
