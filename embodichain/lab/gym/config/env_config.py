"""From the environment's config file to its typed config."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import PositiveInt, ValidationError

from embodichain.lab.gym.config.scene_checks import scene_problems
from embodichain.lab.gym.config.scene_names import has_config_robot, names_in_config
from embodichain.lab.gym.envs.config_data import SCENE_KEYS, TOP_FIELDS
from embodichain.lab.gym.envs.embodied_env import EmbodiedEnvCfg, check_parts
from embodichain.lab.gym.envs.managers.cfg import (
    ActionTermCfg,
    DatasetCfg,
    EventCfg,
    FunctorCfg,
    ObservationCfg,
    RewardCfg,
)
from embodichain.lab.gym.envs.managers.checks import SceneNames, check_modified_entries, parse_term
from embodichain.lab.gym.envs.managers.modules import BLOCK_MODULES, DEFAULT_MANAGER_MODULES
from embodichain.lab.gym.registry import find_env_class
from embodichain.utils import ConfigError, configclass
from embodichain.utils.configclass import replace
from embodichain.utils.errors import collected, raise_problems, unknown_key
from embodichain.utils.module_utils import find_admitted
from embodichain.utils.utility import load_config_file
from embodichain.utils.validation import from_dict

__all__ = [
    "BLOCK_MODULES",
    "DEFAULT_MANAGER_MODULES",
    "ENV_KEYS",
    "TERM_BLOCKS",
    "TOP_KEYS",
    "ConfigFile",
    "EnvFileCfg",
    "config_to_cfg",
    "terms_to_cfg",
]

TERM_BLOCKS: dict[str, type[FunctorCfg]] = {
    "actions": ActionTermCfg,
    "observations": ObservationCfg,
    "rewards": RewardCfg,
    "events": EventCfg,
    "dataset": DatasetCfg,
}
"""The blocks of terms in ``env``, and what a term is in each."""

ENV_KEYS = tuple(f.name for f in dataclasses.fields(EmbodiedEnvCfg) if f.name not in SCENE_KEYS)
"""The keys of the ``env`` block."""

Cfg = TypeVar("Cfg", bound=FunctorCfg)


@configclass
class EnvFileCfg:
    """The keys of an environment's config file that have no counterpart in its typed config."""

    id: Any = None
    """Registered name of the task."""
    env: Any = None
    """The terms and the environment's settings."""
    max_episodes: PositiveInt | None = None
    """Accepted; the training config decides how long a run is."""


_FILE_KEYS = tuple(f.name for f in dataclasses.fields(EnvFileCfg))
TOP_KEYS = (*_FILE_KEYS, *TOP_FIELDS, *SCENE_KEYS)
"""The keys of the whole file."""


@dataclasses.dataclass(frozen=True)
class ConfigFile:
    """An environment config's file; called, it returns the typed config.

    Attributes:
        path: of the file.
    """

    path: Path

    def __call__(self) -> EmbodiedEnvCfg:
        """Return the typed config."""
        return config_to_cfg(self.read())

    def read(self) -> dict[str, Any]:
        """Return the content as plain data."""
        return {key: value for key, value in load_config_file(self.path).items() if key != "$schema"}


def config_to_cfg(
    data: Mapping[str, Any],
    manager_modules: Sequence[str] = DEFAULT_MANAGER_MODULES,
    env_class: type | None = None,
    allowed_imports: Sequence[str] = (),
) -> EmbodiedEnvCfg:
    """Turn a parsed environment config into a typed one.

    Args:
        data: the file's content.
        manager_modules: where functors are looked up, by plain names and by dotted paths.
        env_class: of the environment that will be built; None: the one registered as the config's ``id``. What the
            terms name in the scene is checked only where the class is known.
        allowed_imports: prefixes of further modules, imported already, whose functors the config may name by dotted
            paths.

    Raises:
        ConfigError: with every error found, a line each.
    """
    problems = [f"{key}: {unknown_key(key, TOP_KEYS)}" for key in data if key not in (*TOP_KEYS, "$schema")]
    with collected(problems):
        from_dict(EnvFileCfg, {key: data[key] for key in _FILE_KEYS if key in data}, "")
    problems += scene_problems(data)
    env_class = env_class or find_env_class(data.get("id"))
    names = names_in_config(data, env_class)
    if has_config_robot(env_class) and data.get("robot") is None:
        problems.append("robot: required, but missing")
    env = data.get("env", {})
    if not isinstance(env, dict):
        problems.append(f"env: must be an object, got {env!r}")
        env = {}
    elif env_class is not None and env.get("actions", {}) == {}:
        problems.append("env.actions: at least one action term is needed")
    terms: dict[str, Any] = {}
    for block, cls in TERM_BLOCKS.items():
        content = env.get(block, {})
        terms[block] = terms_to_cfg(
            content, cls, f"env.{block}", names, problems, manager_modules, allowed_imports=allowed_imports
        )
    problems += _entry_problems(env.get("observations"), terms["observations"], names)
    parts = env.get("control_parts")
    if names.parts and isinstance(parts, list):
        with collected(problems):
            check_parts(parts, frozenset().union(*names.parts.values()))
    problems += _extension_problems(_dict(env.get("extensions")), env_class)
    problems += [f"env.{key}: {unknown_key(key, ENV_KEYS)}" for key in env if key not in ENV_KEYS]
    flat = {key: env[key] for key in ENV_KEYS if key in env and key not in TERM_BLOCKS}
    flat |= {key: data[key] for key in (*SCENE_KEYS, *TOP_FIELDS) if key in data}
    try:
        cfg = from_dict(EmbodiedEnvCfg, flat, "")
    except ConfigError as error:
        lines = str(error).splitlines()
        problems += [line if re.split(r"[.\[:]", line)[0] in data else f"env.{line}" for line in lines]
    raise_problems(problems)
    return replace(cfg, **terms)


def terms_to_cfg(
    block: Any,
    cls: type[Cfg],
    place: str,
    names: SceneNames,
    problems: list[str],
    manager_modules: Sequence[str] = DEFAULT_MANAGER_MODULES,
    allowed_imports: Sequence[str] = (),
) -> dict[str, Cfg]:
    """Turn a block of terms by name into typed configs, whose functors are resolved and whose parameters are checked.

    Args:
        block: the config's content.
        cls: what a term of the block is.
        place: where it stands, for messages.
        names: what the terms may name.
        problems: every error found is added, a line each.
        manager_modules: where functors are looked up.
        allowed_imports: as :func:`config_to_cfg`.

    Returns:
        The terms without errors.
    """
    if not isinstance(block, dict):
        problems.append(f"{place}: Input should be an object, got {block!r}")
    found = {}
    for name, data in _dict(block).items():
        term, func = f"{place}.{name}", _dict(data).get("func")
        value: Cfg | None = None
        # A function that Python code put there is set aside, so that the rest is checked as strictly as a file's.
        plain = data | {"func": getattr(func, "__name__", "")} if callable(func) else data
        with collected(problems):
            value = from_dict(cls, plain, term)
        with collected(problems), suppress(ValidationError):
            if isinstance(func, str):
                func = find_admitted(func, manager_modules, allowed_imports, f"{term}.func")
            # Without the keys that have nothing to do with the functor, and may be wrong by themselves.
            needed = {key: plain[key] for key in ("mode", "params") if key in _dict(plain)}
            parse_term(cls(func=cast(Any, func), **needed), term, names)
            if value is not None:
                found[name] = replace(value, func=func)
    return found


def _entry_problems(block: Any, terms: Mapping[str, ObservationCfg], names: SceneNames) -> list[str]:
    """Return the problems of terms that modify an entry; those of terms with errors of their own are not missing."""
    if names.entries is not None:
        broken = {str(_dict(term).get("name") or key) for key, term in _dict(block).items() if key not in terms}
        names = dataclasses.replace(names, entries=names.entries | broken)
    return check_modified_entries(terms, "env.observations", names)


def _extension_problems(extensions: Mapping[str, Any], env_class: type | None) -> list[str]:
    """Return the problems of names that would take the place of what an environment does."""
    problems = []
    for name in extensions:
        place, there = f"env.extensions.{name}", getattr(env_class, name, None)
        if not name.isidentifier() or name.startswith("_"):
            problems.append(f"{place}: must be letters, digits and '_', and not begin with '_' or a digit")
        elif callable(there) or isinstance(there, property | functools.cached_property):
            problems.append(f"{place}: is taken: the environment has a method or property of that name")
    return problems


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
