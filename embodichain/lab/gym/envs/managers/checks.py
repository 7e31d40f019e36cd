"""Terms checked against their functions' signatures and against the scene.

The same check runs when a config is read, with the names that the config has, and when an environment is built.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from embodichain.lab.gym.envs.managers.adapters import takes_observation
from embodichain.lab.gym.envs.managers.base import ActionTerm, Cfg, CommandTerm, Functor, Term
from embodichain.lab.gym.envs.managers.cfg import (
    ALL_SENSORS,
    GROUND_UID,
    ActionTermCfg,
    CameraEntityCfg,
    CameraUid,
    CommandCfg,
    CommandKey,
    ContactSensorUid,
    CurriculumCfg,
    DatasetCfg,
    EventCfg,
    FunctorCfg,
    ObservationCfg,
    RewardCfg,
    SceneEntityCfg,
    TerminationCfg,
)
from embodichain.lab.gym.envs.managers.params import parse_params
from embodichain.lab.gym.envs.managers.term_env import TermEnv
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from embodichain.utils.errors import collected, nearest, placed, raise_problems

# Terms whose parameters are the arguments of their class's `configure`.
_CONFIGURED: dict[type[FunctorCfg], type[ActionTerm | CommandTerm]] = {
    ActionTermCfg: ActionTerm,
    CommandCfg: CommandTerm,
}
_GIVEN_BY_MANAGERS = ("obs", "action", "info", "env_ids", "data")


def wrong_return(place: str, func: Any, value: object, wanted: str) -> ConfigError:
    """Return the error for a term that returned ``value`` instead of a tensor of the ``wanted`` shape."""
    name = getattr(func, "__qualname__", type(func).__qualname__)
    found = f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
    return ConfigError(f"{place}: {name} must return a tensor {wanted}, a row for each environment, not {found}")


def missing_key(place: str, func: Any, error: KeyError) -> ConfigError:
    """Return the error for a term that looked up a key which is not there, with the term's line that did."""
    name = getattr(func, "__qualname__", type(func).__qualname__)
    frames = traceback.extract_tb(error.__traceback__)[1:2]  # the first is the manager's
    where = "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in frames)
    return ConfigError(f"{place}: {name}{where}: no such key: {error.args[0]}")


@contextmanager
def leaving_unchanged(place: str, func: Any, shared: Mapping[str, Tensor]) -> Iterator[None]:
    """Raise a ConfigError if a term writes into a tensor that others read, inside the block.

    Args:
        place: the term's place in the config.
        func: the term.
        shared: the tensors, by names for the message.
    """
    before = {key: value._version for key, value in shared.items() if not value.is_inference()}  # those have none
    yield
    for key, version in before.items():
        if shared[key]._version != version:
            name = getattr(func, "__qualname__", type(func).__qualname__)
            raise ConfigError(
                f"{place}: {name} writes into '{key}', which others read too: make a new tensor, x * 0.1 instead of "
                "x *= 0.1"
            )


@dataclass(frozen=True)
class SceneNames:
    """The names that terms may use. A set is None if it is only known once the environment is built.

    Attributes:
        uids: of all entities.
        parts: the control parts of each robot, by its uid.
        entries: the base observation's, by slash-separated name.
        cameras: the uids of cameras.
        contact_sensors: the uids of contact sensors.
        commands: the names in ``env.commands``.
    """

    uids: frozenset[str] | None
    parts: Mapping[str, frozenset[str]] | None
    entries: frozenset[str] | None = None
    cameras: frozenset[str] | None = None
    contact_sensors: frozenset[str] | None = None
    commands: frozenset[str] | None = None

    @classmethod
    def of(cls, env: TermEnv) -> SceneNames:
        """Return the names of a built scene."""
        parts = {uid: frozenset(robot.control_parts) for uid, robot in env.sim.robots.items()}
        cameras, contacts = frozenset(env.sim.sensors), frozenset(env.sim.contact_sensors)
        return cls(frozenset(env.sim.entity_uids), parts, None, cameras, contacts, frozenset(env.cfg.commands))


def leading_arguments(cfg: FunctorCfg) -> tuple[str, ...]:
    """Return the arguments that a term's manager passes before the ``params``."""
    match cfg:
        case ActionTermCfg() | CommandCfg():
            return ()
        case ObservationCfg():
            return ("env", "data") if cfg.mode == "modify" else ("env", "obs") if takes_observation(cfg) else ("env",)
        case RewardCfg():
            return ("env", "obs", "action", "info")
        case TerminationCfg():
            return ("env",)
        case EventCfg() | CurriculumCfg():
            return ("env", "env_ids")
        case DatasetCfg():
            return ("env", "action", "reward", "done", "info")
    raise TypeError(f"no manager takes {type(cfg).__name__}")


def build_terms(cfgs: Mapping[str, Cfg], env: TermEnv, place: str) -> list[Term[Cfg]]:
    """Build the terms of the config block ``place``; ConfigError as :func:`parse_term`, for all terms together."""
    problems: list[str] = []
    parsed: dict[str, Cfg] = {}
    names = SceneNames.of(env)
    for name, cfg in cfgs.items():
        with collected(problems):
            parsed[name] = replace(cfg, params=parse_term(cfg, f"{place}.{name}", names))
    raise_problems(problems)
    terms = []
    for name, cfg in parsed.items():
        func: Any = cfg.func
        if isinstance(func, type):
            with placed(f"{place}.{name}."):
                func = _instance(func, cfg, env)
        terms.append(Term(name, cfg, func, cfg.params, f"{place.removeprefix('env.')}.{name}"))
    return terms


def _instance(functor_class: type[Functor], cfg: FunctorCfg, env: TermEnv) -> Functor:
    functor = functor_class(cfg, env)
    if "cfg" not in vars(functor):
        raise ConfigError(f"func: {_name_of(functor_class)}.__init__ must call super().__init__(cfg, env)")
    return functor


def parse_term(cfg: FunctorCfg, place: str, names: SceneNames) -> dict[str, Any]:
    """Check a term whose function is resolved, and return its ``params`` converted to their types.

    Raises:
        ConfigError: with every error, a line each: the function is of the wrong kind, parameters are unknown, missing,
            of a wrong type or impossible, or name what the scene does not have.
    """
    func: Any = cfg.func
    skip = len(leading_arguments(cfg))
    if (base := _CONFIGURED.get(type(cfg))) is not None:
        if not (isinstance(func, type) and issubclass(func, base)):
            article = "an" if base is ActionTerm else "a"
            raise ConfigError(f"{place}.func: must be {article} {base.__name__} class, got {_name_of(func)}")
        parsed = parse_params(func.configure, 1, cfg.params, f"{place}.params")
    elif isinstance(func, type):
        if not issubclass(func, Functor) or issubclass(func, ActionTerm | CommandTerm):
            raise ConfigError(f"{place}.func: must be a function or a Functor class, got the class {_name_of(func)}")
        _check_kind(cfg, func.__call__, skip + 1, place)
        parsed = parse_params(func.__call__, skip + 1, cfg.params, f"{place}.params")
        raise_problems(f"{place}.params.{problem}" for problem in func.check_params(parsed))
    else:
        _check_kind(cfg, func, skip, place)
        parsed = parse_params(func, skip, cfg.params, f"{place}.params")
    raise_problems(_unknown_names(parsed, f"{place}.params", names))
    return {key: parsed[key] for key in cfg.params}


def _check_kind(cfg: FunctorCfg, func: Any, skip: int, place: str) -> None:
    """Raise a ConfigError if a function is for another block or mode."""
    arguments = inspect.signature(func).parameters
    if any(a.kind is a.VAR_POSITIONAL for a in arguments.values()):
        return
    names, given, what = list(arguments), _given(cfg), _name_of(cfg.func)
    required = {name for name, a in arguments.items() if a.default is a.empty}
    foreign = [n for n in names[skip:] if n in _GIVEN_BY_MANAGERS and n in required and n not in cfg.params]
    if foreign == ["data"] and isinstance(cfg, ObservationCfg):
        raise ConfigError(f"{place}.mode: {what} changes an entry, so it must be 'modify', got '{cfg.mode}'")
    if foreign:
        raise ConfigError(f"{place}.func: {what} takes {', '.join(foreign)}, but is only given {given} here")
    _check_second(cfg, arguments.values(), place)
    # The last given argument: one of its own would have a default, or be a parameter.
    if len(names) < skip or (names[skip - 1] not in required and names[skip - 1] not in _GIVEN_BY_MANAGERS):
        raise ConfigError(f"{place}.func: {what} does not take {given}, which it is given here")


def _check_second(cfg: FunctorCfg, arguments: Iterable[inspect.Parameter], place: str) -> None:
    """Raise a ConfigError if the second argument of an ``add`` term may be the observation or a parameter."""
    if not isinstance(cfg, ObservationCfg) or cfg.mode != "add" or takes_observation(cfg):
        return
    skip = 2 if isinstance(cfg.func, type) else 1
    for second in list(arguments)[skip : skip + 1]:
        if second.default is second.annotation is second.empty and second.name not in cfg.params:
            raise ConfigError(
                f"{place}.func: {_name_of(cfg.func)} takes '{second.name}' after env: give it in params, or call it "
                "obs if it is the observation (func(env, **params), or func(env, obs, **params))"
            )


def _given(cfg: FunctorCfg) -> str:
    """Return the arguments that a term is given, as text."""
    if isinstance(cfg, ObservationCfg) and cfg.mode == "add":
        return "env, or env and obs"
    return ", ".join(leading_arguments(cfg))


def _unknown_names(params: Mapping[str, Any], place: str, names: SceneNames) -> Iterator[str]:
    robot = params.get("robot_uid")
    for path, key, value in _mentions(params, place):
        if isinstance(value, CameraUid):
            if names.cameras is None:
                continue
            known, what, of = names.cameras | {ALL_SENSORS}, "camera", "scene"
        elif isinstance(value, ContactSensorUid):
            if names.contact_sensors is None:
                continue
            known, what, of = names.contact_sensors, "contact sensor", "scene"
        elif isinstance(value, CommandKey):
            if names.commands is None:
                continue
            known, what, of = names.commands, "command", "config's env.commands"
        elif key == "part_name" or key.endswith("_part_name"):
            if names.parts is None:
                continue
            known = names.parts.get(robot, frozenset()) if robot else frozenset().union(*names.parts.values())
            what, of = "control part", f"robot '{robot or next(iter(names.parts), '')}'"
        elif key == "robot_uid" and names.parts is not None:
            known, what, of = frozenset(names.parts), "robot", "scene"
        elif names.uids is not None:
            known, what, of = names.uids, "", "scene"
        else:
            continue
        if value not in known and value != GROUND_UID:
            there = ", ".join(sorted(known)) or "none"
            yield f"{path}: no {what and what + ' '}'{value}' in the {of}.{nearest(value, known)} There are: {there}"


def _mentions(params: Mapping[str, Any], place: str) -> Iterator[tuple[str, str, str]]:
    """Yield path, parameter and value of each name of an entity."""
    for key, value in params.items():
        for i, item in enumerate(value if isinstance(value, (list, tuple)) else [value]):
            path = f"{place}.{key}[{i}]" if isinstance(value, (list, tuple)) else f"{place}.{key}"
            if isinstance(item, CameraEntityCfg):
                yield f"{path}.uid", key, CameraUid(item.uid)
            elif isinstance(item, SceneEntityCfg):
                yield f"{path}.uid", key, item.uid
            elif isinstance(item, dict):
                yield from ((f"{path}.{uid}", key, uid) for uid in item if isinstance(uid, CameraUid))
            elif isinstance(item, ContactSensorUid | CommandKey) or _is_name(key, item):
                yield path, key, item


def _is_name(key: str, value: Any) -> bool:
    """Return whether a parameter's value is the name of an entity or control part, by the parameter's own name."""
    is_named = key == "uids" or key.endswith(("_uid", "_uids", "_uid_list", "part_name"))
    return isinstance(value, str) and is_named


def _name_of(func: Any) -> str:
    return f"'{getattr(func, '__name__', func)}'"
