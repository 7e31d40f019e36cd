"""Terms checked against their functions' signatures and against the scene.

The same check runs when a config is read, with the names that the config has, and when an environment is built.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from embodichain.lab.gym.envs.managers.base import (
    ActionTerm,
    Cfg,
    CommandTerm,
    Functor,
    Term,
    TermEnv,
    kind_of,
    takes_observation,
)
from embodichain.lab.gym.envs.managers.cfg import (
    ActionTermCfg,
    CommandCfg,
    CurriculumCfg,
    DatasetCfg,
    EventCfg,
    FunctorCfg,
    ObservationCfg,
    RewardCfg,
    TerminationCfg,
)
from embodichain.lab.gym.envs.managers.params import parse_params
from embodichain.lab.gym.envs.managers.scene_names import SceneNames, name_problems
from embodichain.utils import ConfigError, collected, placed, raise_problems, replace

# Terms with the arguments of their class's `configure` as parameters.
_CONFIGURED: dict[type[FunctorCfg], type[ActionTerm | CommandTerm]] = {
    ActionTermCfg: ActionTerm,
    CommandCfg: CommandTerm,
}
_WRITTEN: dict[type[Functor], tuple[str, ...]] = {
    ActionTerm: ("process_action",),
    CommandTerm: ("draw",),
    Functor: ("__call__",),
}
"""Methods that a user's class needs, by its base."""
_GIVEN_BY_MANAGERS = ("obs", "action", "info", "env_ids", "data")


def wrong_return(place: str, func: Any, value: object, wanted: str) -> ConfigError:
    """Return the error for a term that returned ``value`` instead of a tensor of the ``wanted`` shape."""
    found = kind_of(value)
    return ConfigError(
        f"{place}: {_qualified_name(func)} must return a tensor {wanted}, a row for each environment, not {found}"
    )


@contextmanager
def leaving_unchanged(place: str, func: Any, shared: Mapping[str, Tensor]) -> Iterator[None]:
    """Raise a ConfigError if a term writes into a tensor that others read, inside the block.

    Args:
        place: the term's place in the config.
        func: the term.
        shared: the tensors, by names for the message.
    """
    before = {key: value._version for key, value in shared.items() if not value.is_inference()}  # they have none
    yield
    for key, version in before.items():
        if shared[key]._version != version:
            raise ConfigError(
                f"{place}: {_qualified_name(func)} writes into '{key}', which others read too: make a new tensor, "
                "x * 0.1 instead of x *= 0.1"
            )


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
                func = _instance(func, cfg, env, f"{place}.{name}")
        terms.append(Term(name, cfg, func, cfg.params, f"{place}.{name}"))
    return terms


def _instance(functor_class: type[Functor], cfg: FunctorCfg, env: TermEnv, place: str) -> Functor:
    try:
        functor = functor_class(cfg, env)
    except ConfigError:
        raise
    except Exception as error:
        error.add_note(place)
        raise
    if "cfg" not in vars(functor):
        raise ConfigError(f"func: {_name_of(functor_class)}.__init__ must call super().__init__(cfg, env)")
    return functor


def _check_written(functor_class: type[Functor], base: type[Functor], place: str) -> None:
    """Raise a ConfigError if a class lacks a method that its base requires."""
    if base is CommandTerm and functor_class.reset is not base.reset:
        return  # which alone calls it
    for name in _WRITTEN[base]:
        if getattr(functor_class, name) is getattr(base, name):
            raise ConfigError(
                f"{place}.func: {_name_of(functor_class)} has no '{name}', which {base.__name__} classes need"
            )


def parse_term(cfg: FunctorCfg, place: str, names: SceneNames) -> dict[str, Any]:
    """Check a term with a resolved function, and return its ``params`` converted to their types.

    Raises:
        ConfigError: all errors, a line each: the function is of the wrong kind, parameters are unknown, missing,
            of a wrong type or impossible, or name things that the scene does not have.
    """
    func: Any = cfg.func
    skip = len(leading_arguments(cfg))
    if (base := _CONFIGURED.get(type(cfg))) is not None:
        if not (isinstance(func, type) and issubclass(func, base)):
            article = "an" if base is ActionTerm else "a"
            raise ConfigError(f"{place}.func: must be {article} {base.__name__} class, got {_name_of(func)}")
        _check_written(func, base, place)
        parsed = parse_params(func.configure, 1, cfg.params, f"{place}.params")
    elif isinstance(func, type):
        if not issubclass(func, Functor) or issubclass(func, ActionTerm | CommandTerm):
            raise ConfigError(f"{place}.func: must be a function or a Functor class, got the class {_name_of(func)}")
        _check_written(func, Functor, place)
        _check_kind(cfg, func.__call__, skip + 1, place)
        parsed = parse_params(func.__call__, skip + 1, cfg.params, f"{place}.params")
        raise_problems(f"{place}.params.{problem}" for problem in func.check_params(parsed))
    else:
        _check_kind(cfg, func, skip, place)
        parsed = parse_params(func, skip, cfg.params, f"{place}.params")
    raise_problems(name_problems(parsed, f"{place}.params", names))
    if isinstance(cfg, EventCfg):
        _check_interval(cfg, place)
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


def _check_interval(cfg: EventCfg, place: str) -> None:
    """Raise a ConfigError if an event for all environments together has intervals that each of them draws."""
    if isinstance(cfg.interval_step, tuple) and (cfg.is_global or getattr(cfg.func, "is_global", False)):
        raise ConfigError(
            f"{place}.interval_step: must be one number, since {_name_of(cfg.func)} is called for all environments "
            f"together, got {list(cfg.interval_step)}"
        )


def _given(cfg: FunctorCfg) -> str:
    """Return the arguments that a term is given, as text."""
    if isinstance(cfg, ObservationCfg) and cfg.mode == "add":
        return "env, or env and obs"
    return ", ".join(leading_arguments(cfg))


def _qualified_name(func: Any) -> str:
    return str(getattr(func, "__qualname__", type(func).__qualname__))


def _name_of(func: Any) -> str:
    return f"'{getattr(func, '__name__', func)}'"
