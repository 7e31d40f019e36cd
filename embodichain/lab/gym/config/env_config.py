"""From the environment's config file to its typed config."""

import copy
import dataclasses
import functools
import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from pydantic import PositiveInt
from pydantic.errors import PydanticUserError

from embodichain.lab.gym.config.scene import read_scene
from embodichain.lab.gym.env_sources import ParsedTask
from embodichain.lab.gym.envs import BaseEnv, EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.env_cfg import SCENE_KEYS, TOP_FIELDS, check_parts, config_data
from embodichain.lab.gym.envs.managers.cfg import DEFAULT_MANAGER_MODULES, TERM_BLOCKS, FunctorCfg, ObservationCfg
from embodichain.lab.gym.envs.managers.checks import SceneNames, parse_term
from embodichain.lab.gym.registry import find_env_spec
from embodichain.utils import collected, configclass, doors, logger, raise_problems, replace, unknown_key, unknown_name
from embodichain.utils.configclass import parse
from embodichain.utils.errors import MISSPELT, closest, nearest
from embodichain.utils.module_utils import find_admitted, imports_allowed_by_environment
from embodichain.utils.utility import load_config_file

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
    """The path of an environment config's file; called, it returns the config."""

    path: Path

    def __call__(self) -> EmbodiedEnvCfg:
        """Return the typed config."""
        return config_to_cfg(self.read(), folder=self.path.parent)

    def read(self) -> dict[str, Any]:
        """Return the content as plain data."""
        return {key: value for key, value in load_config_file(self.path).items() if key != "$schema"}


def converted(data: Mapping[str, Any], kind: Literal["training", "environment"]) -> dict[str, Any]:
    """Return a config in our layout, by the converters behind the door ``embodichain.config_converters``."""
    ours = copy.deepcopy(dict(data))
    for convert in doors.load_all(doors.CONFIG_CONVERTERS).values():
        ours = convert(ours, kind)
    return ours


def config_to_cfg(
    data: Mapping[str, Any],
    manager_modules: Sequence[str] = DEFAULT_MANAGER_MODULES,
    env_class: type | None = None,
    allowed_imports: Sequence[str] = (),
    folder: Path = Path(),
) -> EmbodiedEnvCfg:
    """Turn a parsed environment config into a typed one; a ConfigError has every error, one per line.

    Args:
        manager_modules: where functors are looked up, by plain names and by dotted paths.
        env_class: class of the environment that will be built; None: the one registered as the config's ``id``. What
            the terms name in the scene is checked only where the class is known.
        allowed_imports: prefixes of further modules, imported already, whose functors the config may name by dotted
            paths, in addition to the environment variable ``EMBODICHAIN_ALLOW_IMPORT``.
        folder: where model files are looked for that are not in the working directory.
    """
    allowed = [*allowed_imports, *imports_allowed_by_environment()]
    parsed = parse_env(converted(data, "environment"), manager_modules, env_class, allowed, folder)
    raise_problems(parsed.problems)
    return parsed.cfg


def parse_env(
    data: Mapping[str, Any],
    manager_modules: Sequence[str] = DEFAULT_MANAGER_MODULES,
    env_class: type | None = None,
    allowed_imports: Sequence[str] = (),
    folder: Path = Path(),
) -> ParsedTask[EmbodiedEnvCfg]:
    """Turn an environment config in our layout into a typed one and check it; arguments as :func:`config_to_cfg`."""
    problems = [f"{key}: {unknown_key(key, TOP_KEYS)}" for key in data if key not in (*TOP_KEYS, "$schema")]
    spec = find_env_spec(data.get("id"))
    if env_class is None and spec is not None:
        env_class = spec.cls
        if not issubclass(env_class, BaseEnv):
            problems.append(
                f"id: the class {env_class.__qualname__} of '{spec.env_id}' must be a subclass of EmbodiedEnv"
            )
    cfg, wrong = _parse(data, defaults_of(env_class), problems)
    problems += [f"{path}: {problem}" for path, problem in wrong.items()]
    names = read_scene(cfg, env_class, folder, wrong, problems)
    if env_class is not None and not (cfg.actions or "env" in wrong or "env.actions" in wrong):
        problems.append("env.actions: at least one action term is needed")
    if names.parts and cfg.control_parts is not None:
        with collected(problems):
            check_parts(cfg.control_parts, frozenset().union(*names.parts.values()))
    problems += _extension_problems(cfg.extensions, env_class)
    find = functools.partial(find_admitted, modules=manager_modules, allowed_imports=allowed_imports)
    terms = {
        block: _check_terms(getattr(cfg, block), f"env.{block}", names, wrong, find, problems) for block in TERM_BLOCKS
    }
    problems += _entry_problems(cfg.observations, names, problems)
    if env_class is not None and issubclass(env_class, EmbodiedEnv) and not problems:
        problems += env_class.config_problems(cfg)
    env_id, limit = (None, None) if spec is None else (spec.env_id, spec.max_episode_steps)

    def as_written() -> dict[str, Any]:
        assert spec is not None
        return config_data(cfg, spec.cls) | {"id": spec.env_id}

    return ParsedTask(replace(cfg, **terms), env_id, cfg.max_episode_steps or limit, problems, as_written, names)


def defaults_of(env_class: type | None) -> Mapping[str, Any]:
    """Return what a config of an environment of this class may leave out; see ``EmbodiedEnv.config_defaults``."""
    return env_class.config_defaults if env_class is not None and issubclass(env_class, EmbodiedEnv) else {}


def _parse(
    data: Mapping[str, Any], defaults: Mapping[str, Any], problems: list[str]
) -> tuple[EmbodiedEnvCfg, dict[str, str]]:
    """Return the typed config of a file without its wrong values, and the errors by path in the file.

    ``defaults`` stand for what the file and its ``env`` leave out. Unknown keys are added to ``problems``.
    """
    _, wrong = parse(EnvFileCfg, {key: data[key] for key in _FILE_KEYS if key in data}, "")
    env = data.get("env", {})
    if not isinstance(env, dict):
        wrong["env"] = f"must be an object, got {env!r}"
        env = {}
    problems += [f"env.{key}: {unknown_key(key, ENV_KEYS)}" for key in env if key not in ENV_KEYS]
    env = {**defaults.get("env", {}), **env}
    top = {key: whole[key] for whole in (defaults, data) for key in (*SCENE_KEYS, *TOP_FIELDS) if key in whole}
    problems += [
        f"env.{key}: has no effect with {key} at the top of the file: set that one"
        for key in TOP_FIELDS
        if key in top and key in env
    ]
    cfg, found = parse(EmbodiedEnvCfg, {key: env[key] for key in ENV_KEYS if key in env} | top, "")
    wrong |= {path if re.split(r"[.\[]", path)[0] in top else f"env.{path}": found[path] for path in found}
    for path in wrong:
        match = re.fullmatch(rf"env\.({'|'.join(TERM_BLOCKS)})\.(.+)\.func", path)
        if match and "missing" in wrong[path]:
            others = [name for name in env[match[1]] if name != match[2]]
            wrong[path] += f".{nearest(match[2], others)} There are: {', '.join(others) or 'none'}"
    return cfg or EmbodiedEnvCfg(), wrong


def terms_to_cfg(
    block: Any, cls: type[Cfg], place: str, names: SceneNames, problems: list[str], allowed_imports: Sequence[str]
) -> dict[str, Cfg]:
    """Turn a block of terms of a class by name into typed configs, with functors resolved and parameters checked.

    Every error found is added to ``problems``, one per line.
    """
    terms, wrong = parse(cast("type[dict[str, Cfg]]", dict[str, cls]), block, place)  # type: ignore[valid-type]
    problems += [f"{path}: {problem}" for path, problem in wrong.items()]
    find = functools.partial(find_admitted, modules=DEFAULT_MANAGER_MODULES, allowed_imports=allowed_imports)
    return _check_terms(terms or {}, place, names, wrong, find, problems)


def _check_terms(
    terms: Mapping[str, Cfg],
    place: str,
    names: SceneNames,
    wrong: Collection[str],
    find: Callable[..., Any],
    problems: list[str],
) -> dict[str, Cfg]:
    """Return the terms with their functions resolved, and add the errors of their parameters to ``problems``.

    ``find`` looks functions up, as :func:`find_admitted`. Terms at paths that are ``wrong`` already are not checked.
    """
    found = {}
    for name, cfg in terms.items():
        term = f"{place}.{name}"
        with collected(problems):
            if isinstance(cfg.func, str):
                cfg = replace(cfg, func=find(cfg.func, place=f"{term}.func"))
            if not {term, f"{term}.func", f"{term}.mode", f"{term}.params"} & set(wrong):
                parse_term(cfg, term, names)
        found[name] = cfg
    return found


def _entry_problems(observations: Mapping[str, ObservationCfg], names: SceneNames, known: Sequence[str]) -> list[str]:
    """Return the problems of ``modify`` terms without an entry, and of ``add`` terms that would replace one.

    An ``add`` term with a problem of its own among the ``known`` ones may be meant as ``modify``.
    """
    if names.entries is None:
        return []
    entries = set(names.entries)
    problems = []
    for term, cfg in observations.items():
        name = cfg.name or term
        if cfg.mode == "add":
            taken = [entry for entry in entries if f"{entry}/".startswith(f"{name}/") or name.startswith(f"{entry}/")]
            line = f"env.observations.{term}: there is an entry '{min(taken, default='')}' already"
            if name in entries and not any(line.startswith(f"env.observations.{term}.") for line in known):
                logger.log_warning(f"{line}, which this one replaces; to change it, write mode 'modify'")
            elif taken and name not in entries:
                problems.append(f'{line}: choose another name, "name": ...')
            entries.add(name)
        elif name not in entries:
            problems.append(f"env.observations.{term}.name: {unknown_name('entry', name, entries)}")
    return problems


def _extension_problems(extensions: Mapping[str, Any], env_class: type | None) -> list[str]:
    """Return the problems of names that would hide a method of the environment, and of values of another type.

    A value must be of the type that the class annotates its attribute with, as in ``reach: float = 0.1``. A warning
    names what is nearly an attribute: a task may read others from its config.
    """
    problems = []
    kinds: dict[str, Any] = {}
    for base in reversed((env_class or object).__mro__):
        for name, kind in inspect.get_annotations(base).items():
            with suppress(NameError):  # of a name that only a type checker knows
                kinds[name] = eval(kind, vars(sys.modules[base.__module__])) if isinstance(kind, str) else kind
    own = [name for name in {*kinds, *dir(env_class)} if name[0] != "_"]
    for name, value in extensions.items():
        place, there = f"env.extensions.{name}", getattr(env_class, name, None)
        if not name.isidentifier() or name.startswith("_"):
            problems.append(f"{place}: must be letters, digits and '_', and not begin with '_' or a digit")
        elif callable(there) or isinstance(there, property | functools.cached_property):
            problems.append(f"{place}: is taken: the environment has a method or property of that name")
        elif name not in own:
            if meant := closest(name, own, MISSPELT):
                logger.log_warning(f"{place}: the task has '{meant}': is it meant?")
        elif name in kinds:
            with suppress(PydanticUserError):  # a type that no file can hold
                problems += [f"{path}: {problem}" for path, problem in parse(kinds[name], value, place)[1].items()]
    return problems
