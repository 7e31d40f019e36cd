"""Terms checked against their functions' signatures and against the names of the scene.

The same check runs when a config is read, with the names that the config has, and when an environment is built.
"""

import functools
import inspect
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Optional, Self, cast

from pydantic.dataclasses import rebuild_dataclass
from pydantic.warnings import ArbitraryTypeWarning
from torch import Tensor

from embodichain.lab.gym.envs.managers import types
from embodichain.lab.gym.envs.managers.base import ActionTerm, Cfg, CommandTerm, Functor, Term, TermEnv, kind_of
from embodichain.lab.gym.envs.managers.cfg import (
    ActionTermCfg,
    CommandCfg,
    EventCfg,
    FunctorCfg,
    ObservationCfg,
    RewardCfg,
)
from embodichain.lab.sim.cfg import ArticulationCfg, LightCfg, RigidObjectCfg, RigidObjectGroupCfg, RobotCfg
from embodichain.lab.sim.model.drives import match_names
from embodichain.lab.sim.model.scene import EntityCfg
from embodichain.lab.sim.sensors import CameraCfg, ContactSensorCfg
from embodichain.utils import (
    ConfigError,
    collected,
    configclass,
    from_dict,
    nearest,
    placed,
    raise_problems,
    replace,
    unknown_name,
)

# Terms with the arguments of their class's `configure` as parameters.
_CONFIGURED: dict[type[FunctorCfg], type[ActionTerm | CommandTerm]] = {
    ActionTermCfg: ActionTerm,
    CommandCfg: CommandTerm,
}
_WRITTEN: dict[type[Functor], str] = {ActionTerm: "process_action", CommandTerm: "draw", Functor: "__call__"}
"""Method that a user's class needs, by its base."""
_GIVEN_BY_MANAGERS = ("obs", "action", "info", "env_ids", "data")
_OBSERVATION_NAMES = ("obs", "_obs", "observation", "observations")
_OBSERVATION_TYPES = ("EnvObs", "TensorDict")

_KINDS: dict[str, type | tuple[type, ...]] = {
    "": object,
    "rigid object": RigidObjectCfg,
    "rigid object group": RigidObjectGroupCfg,
    "articulation": ArticulationCfg,
    "robot": RobotCfg,
    "articulation or robot": ArticulationCfg,
    "light": LightCfg,
    "camera": CameraCfg,
    "contact sensor": ContactSensorCfg,
}


@dataclass(frozen=True)
class SceneNames:
    """Names that terms may use, without names that are only known once the environment is built."""

    uids: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Uids of the entities of each kind (``SceneEntityCfg.kind``; "": any), and the names in ``env.commands``."""
    parts: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Control parts of each robot, by its uid."""
    entries: frozenset[str] | None = None
    """Base observation's entries, by slash-separated name; None: not known."""
    robot: str | None = None
    """Uid of the environment's robot."""
    joints: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Joints of robots and articulations, in their order, by uid."""
    links: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Links of robots and articulations, in their order, by uid."""
    sensed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Links of contact sensors, in their order, by uid."""

    @classmethod
    def of(cls, env: TermEnv) -> Self:
        """Return the names of a built scene."""
        builder, robot = env.sim.builder, env.robot.uid if env.sim.robots else None
        uids = uids_by_kind(builder.entities.values())
        uids |= {"": frozenset(env.sim.entity_uids), "command": frozenset(env.cfg.commands)}
        return cls(uids, builder.contents.parts, None, robot, **builder.names())


def uids_by_kind(entities: Iterable[EntityCfg], added: Iterable[str] = ()) -> dict[str, frozenset[str]]:
    """Return the uids of each kind of entity, with the ``added`` ones, a task's own, which may be of any kind."""
    entities = list(entities)
    found = {
        kind: frozenset([*added, *(cfg.uid for cfg in entities if isinstance(cfg, cls))])
        for kind, cls in _KINDS.items()
    }
    found["articulation"] -= found["robot"] - frozenset(added)
    return found


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
                func = Term(name, cfg, func, {}, f"{place}.{name}")(cfg, env)  # errors name the term
                if "cfg" not in vars(func):
                    raise ConfigError(f"func: {_name_of(cfg.func)}.__init__ must call super().__init__(cfg, env)")
        terms.append(Term(name, cfg, func, cfg.params, f"{place}.{name}"))
    return terms


def parse_term(cfg: FunctorCfg, place: str, names: SceneNames) -> dict[str, Any]:
    """Check a term with a resolved function, and return its ``params`` converted; a ConfigError has all errors."""
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
    params_place = f"{place}.params"
    raise_problems([*_unknown_entities(parsed, params_place, names), *_model_problems(parsed, params_place, names)])
    if isinstance(cfg, EventCfg):
        _check_interval(cfg, place)
    return {key: parsed[key] for key in cfg.params}


def leading_arguments(cfg: FunctorCfg) -> tuple[str, ...]:
    """Return the arguments that a term's manager passes before the ``params``."""
    if isinstance(cfg, ObservationCfg):
        return ("env", "data") if cfg.mode == "modify" else ("env", "obs") if takes_observation(cfg) else ("env",)
    return cfg.given[:1] if isinstance(cfg, RewardCfg) and not takes_step(cfg) else cfg.given


def takes_observation(cfg: FunctorCfg) -> bool:
    """Return whether an ``add`` term takes the environment and the observation so far, as EmbodiChain's do.

    Its second argument, after the environment, is then called ``obs`` (or ``observation``), or annotated so, and not
    one of the ``params``.
    """
    return isinstance(cfg, ObservationCfg) and cfg.mode == "add" and any(map(_is_observation, _second(cfg)))


def takes_step(cfg: RewardCfg) -> bool:
    """Return whether a reward takes observation, action and info after the environment, as EmbodiChain's do.

    Its second argument is then the observation by name or type, or has neither a type nor a default.
    """
    return any(_is_observation(a) or a.default is a.annotation is a.empty for a in _second(cfg))


def _second(cfg: FunctorCfg) -> list[inspect.Parameter]:
    """Return the argument that takes what follows the environment, unless it is one of the ``params``."""
    func: Any = cfg.func
    arguments = list(inspect.signature(func.__call__ if isinstance(func, type) else func).parameters.values())
    given = [a for a in arguments[isinstance(func, type) :] if a.kind not in (a.KEYWORD_ONLY, a.VAR_KEYWORD)]
    rest = [a for a in given if a.kind is a.VAR_POSITIONAL]
    return [a for a in given[1:2] or rest if a.name not in cfg.params]


def _is_observation(argument: inspect.Parameter) -> bool:
    return argument.name in _OBSERVATION_NAMES or _type_name(argument.annotation) in _OBSERVATION_TYPES


def _type_name(annotation: Any) -> str:
    """Return the last name of an annotation, which may be a text."""
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return name.partition("[")[0].rpartition(".")[2]


def _check_written(functor_class: type[Functor], base: type[Functor], place: str) -> None:
    """Raise a ConfigError if a class lacks a method that its base requires."""
    if base is CommandTerm and functor_class.reset is not base.reset:
        return  # which alone calls it
    name = _WRITTEN[base]
    if getattr(functor_class, name) is getattr(base, name):
        raise ConfigError(
            f"{place}.func: {_name_of(functor_class)} has no '{name}', which {base.__name__} classes need"
        )


def _check_kind(cfg: FunctorCfg, func: Any, skip: int, place: str) -> None:
    """Raise a ConfigError if a function is for another block or mode."""
    arguments = inspect.signature(func).parameters
    if any(a.kind is a.VAR_POSITIONAL for a in arguments.values()):
        return
    names, given, what = list(arguments), ", ".join(leading_arguments(cfg)), _name_of(cfg.func)
    if isinstance(cfg, ObservationCfg) and cfg.mode == "add":
        given = "env, or env and obs"
    elif isinstance(cfg, RewardCfg):
        given = "env, or env, obs, action and info"
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


def is_global(cfg: EventCfg) -> bool:
    """Return whether an event is called for all environments together, by its config or its function."""
    return cfg.is_global or getattr(cfg.func, "is_global", False)


def _check_interval(cfg: EventCfg, place: str) -> None:
    """Raise a ConfigError if an event for all environments together has intervals that each of them draws."""
    if isinstance(cfg.interval_step, tuple) and is_global(cfg):
        raise ConfigError(
            f"{place}.interval_step: must be one number, since {_name_of(cfg.func)} is called for all environments "
            f"together, got {list(cfg.interval_step)}"
        )


@dataclass(frozen=True)
class Signature:
    """The arguments of a function that a config gives."""

    cls: type
    """A config class with a field for each, typed and with its default as in the signature."""
    untyped: frozenset[str]
    """Parameters without an annotation, or with one that only a type checker can resolve."""
    takes_more: bool
    """Whether the function has ``**kwargs`` too."""


@functools.cache
def read_signature(func: Callable[..., Any], skip: int) -> Signature:
    """Read a function's arguments, without the first ``skip``, which the manager passes."""
    arguments = list(inspect.signature(func).parameters.values())
    positional = [a for a in arguments if a.kind in (a.POSITIONAL_ONLY, a.POSITIONAL_OR_KEYWORD)]
    own = positional[skip:] + [a for a in arguments if a.kind is a.KEYWORD_ONLY]
    hints = {a.name: _hint(func, a) for a in own}
    defaults = {a.name: a.default for a in own if a.default is not a.empty}
    name = f"{func.__qualname__} params" if hasattr(func, "__qualname__") else "params"
    with warnings.catch_warnings():
        # Non-types, such as `callable`, allow anything.
        warnings.simplefilter("ignore", ArbitraryTypeWarning)
        try:
            cls = _make_class(name, hints, defaults)
        except NameError:  # a name inside a type: list["TermEnv"]
            hints = dict.fromkeys(hints, Any)
            cls = _make_class(name, hints, defaults)
    untyped = frozenset(name for name, hint in hints.items() if hint is Any)
    return Signature(cls, untyped, any(a.kind is a.VAR_KEYWORD for a in arguments))


def _make_class(name: str, hints: dict[str, Any], defaults: dict[str, Any]) -> type:
    cls: type = configclass(type(name, (), {"__annotations__": hints, **defaults}))
    rebuild_dataclass(cast(Any, cls))
    return cls


def parse_params(func: Callable[..., Any], skip: int, params: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Check the ``params`` at a place in the config against a signature without the manager's ``skip`` first arguments.

    Returns:
        All arguments, defaults included, converted to their types; ``{"uid": ...}`` is a :class:`SceneEntityCfg`.
    """
    signature = read_signature(func, skip)
    own = inspect.get_annotations(signature.cls)
    known = {key: value for key, value in params.items() if not signature.takes_more or key in own}
    values = vars(from_dict(signature.cls, known, place, noun="parameter"))
    parsed = {name: values[name] for name in own}
    for key, value in params.items():
        if key in signature.untyped or key not in known:
            is_entity = isinstance(value, dict) and "uid" in value
            parsed[key] = from_dict(types.SceneEntityCfg, value, f"{place}.{key}") if is_entity else value
    return parsed


def _hint(func: Any, argument: inspect.Parameter) -> Any:
    """Return the type of an annotation, or Any if it cannot be resolved at runtime."""
    hint = Any if argument.annotation is argument.empty else argument.annotation
    if isinstance(hint, str):
        try:
            # The module's own source, as typing.get_type_hints reads it; that gives up where one name is not there, and
            # terms import the environment's class for type checkers only.
            hint = eval(hint, getattr(inspect.unwrap(func), "__globals__", {}))
        except (AttributeError, NameError, SyntaxError, TypeError):
            return Any
    # Many write `sigma: float = None`.
    return Optional[hint] if argument.default is None and hint is not Any else hint  # noqa: UP045 (hint is a value)


def _unknown_entities(params: Mapping[str, Any], place: str, names: SceneNames) -> Iterator[str]:
    """Yield the problems of a term's converted parameters that name entities missing in the scene."""
    robot = params.get("robot_uid")
    for path, kind, value in _mentions(params, place):
        known, of = names.uids.get(kind), "config's env.commands" if kind == "command" else "scene"
        if kind == "control part":
            parts = [parts for uid, parts in names.parts.items() if robot in (None, uid)]
            known = frozenset().union(*parts) if parts else None
            of = f"robot '{robot or next(iter(names.parts), '')}'"
        elif kind == "camera" and known is not None:
            known |= {types.ALL_SENSORS}
        if known is not None and value not in known and (kind, value) != ("", types.GROUND_UID):
            there = ", ".join(sorted(known)) or "none"
            yield f"{path}: no {kind and kind + ' '}'{value}' in the {of}.{nearest(value, known)} There are: {there}"


def _mentions(params: Mapping[str, Any], place: str) -> Iterator[tuple[str, str, str]]:
    """Yield path, kind and value of each name of an entity."""
    for key, value in params.items():
        is_list = isinstance(value, (list, tuple))
        for i, item in enumerate(value if is_list else [value]):
            path = f"{place}.{key}[{i}]" if is_list else f"{place}.{key}"
            match item:
                case types.SceneEntityCfg():
                    yield f"{path}.uid", item.kind, item.uid
                case dict():
                    yield from ((f"{path}.{uid}", uid.kind, uid) for uid in item if isinstance(uid, types.SceneName))
                case types.SceneName():
                    yield path, item.kind, item
                case str() if key == "robot_uid":
                    yield path, "robot", item
                case str() if key.endswith("part_name"):
                    yield path, "control part", item
                case str() if key == "uids" or key.endswith(("_uid", "_uids", "_uid_list")):
                    yield path, "", item


def _model_problems(params: Mapping[str, Any], place: str, names: SceneNames) -> list[str]:
    """Return the problems of joints and links that are not there, and of a wrong number of values for them."""
    problems: list[str] = []
    for key, value in params.items():
        path = f"{place}.{key}"
        with collected(problems):
            if isinstance(value, types.SceneEntityCfg):
                if value.joint_names is not None and value.uid in names.joints:
                    match_names(_patterns(value.joint_names), names.joints[value.uid], f"{path}.joint_names")
                for part in _patterns(value.control_parts or []):
                    if part not in names.parts.get(value.uid, [part]):
                        raise ConfigError(f"{path}: {unknown_name('control part', part, names.parts[value.uid])}")
                if value.link_names is not None and value.uid in names.links:
                    match_names(value.link_names, names.links[value.uid], f"{path}.link_names", "link")
            elif isinstance(value, dict) and (joints := names.joints.get(names.robot or "")):
                match_names([name for name in value if getattr(name, "kind", "") == "joint"], joints, path)
            elif isinstance(value, types.LinkNumbers):
                names_of = (uid for uid in params.values() if isinstance(uid, types.SceneName))
                sensor = next((uid for uid in names_of if uid.kind == "contact sensor"), "")
                if sensor in names.sensed:
                    problems += _count_problem(path, value, names.sensed[sensor], f"links of sensor '{sensor}'")
    return problems if problems else _joint_number_problems(params, place, names)


def _joint_number_problems(params: Mapping[str, Any], place: str, names: SceneNames) -> list[str]:
    """Return the problems of indices of joints and of ranges with numbers for each joint."""
    entity = next((value for value in params.values() if isinstance(value, types.SceneEntityCfg)), None)
    joints = names.joints.get((params.get("robot_uid") or names.robot or "") if entity is None else entity.uid)
    if joints is None or (entity is not None and entity.control_parts is not None):
        return []
    ids = {key: value for key, value in params.items() if isinstance(value, types.JointNumbers)}
    for key, value in ids.items():
        if wrong := [joint for joint in value if not 0 <= joint < len(joints)]:
            there = ", ".join(f"{i} ({name})" for i, name in enumerate(joints))
            return [f"{place}.{key}: no joint {wrong[0]}. There are: {there}"]
        joints = [joints[joint] for joint in value]
    if not ids and entity is not None and entity.joint_names is not None:
        joints = match_names(_patterns(entity.joint_names), joints, place)
    return [
        problem
        for key, value in params.items()
        if isinstance(value, types.JointRanges) and len(value[0]) != 1
        for problem in _count_problem(f"{place}.{key}", value[0], joints, "joints")
    ]


def _patterns(given: list[str] | str) -> list[str]:
    return [given] if isinstance(given, str) else given


def _count_problem(path: str, values: Sequence[float], of: Sequence[str], what: str) -> list[str]:
    if len(values) == len(of):
        return []
    return [f"{path}: has {len(values)} values for {len(of)} {what}: {', '.join(of)}"]


def wrong_return(place: str, func: Any, value: object, wanted: str) -> ConfigError:
    """Return the error for a term that returned ``value`` instead of a tensor of the ``wanted`` shape."""
    found = kind_of(value)
    return ConfigError(
        f"{place}: {_qualified_name(func)} must return a tensor {wanted}, a row for each environment, not {found}"
    )


@contextmanager
def leaving_unchanged(place: str, func: Any, shared: Mapping[str, Tensor]) -> Iterator[None]:
    """Raise a ConfigError if a term writes into one of the ``shared`` tensors that others read, inside the block."""
    before = {key: value._version for key, value in shared.items() if not value.is_inference()}  # they have none
    yield
    for key, version in before.items():
        if shared[key]._version != version:
            raise ConfigError(
                f"{place}: {_qualified_name(func)} writes into '{key}', which others read too: make a new tensor, "
                "x * 0.1 instead of x *= 0.1"
            )


def _qualified_name(func: Any) -> str:
    return str(getattr(func, "__qualname__", type(func).__qualname__))


def _name_of(func: Any) -> str:
    return f"'{getattr(func, '__name__', func)}'"
