"""``@configclass``: typed configuration classes, checked when they are built, and built from plain data.

A config class is a pydantic dataclass. Values that come from JSON are converted and checked against the
annotations, unknown names are refused, and nested config classes accept plain dictionaries::

    @configclass
    class DriveCfg:
        stiffness: float              # no default: required, reported by validate()
        names: list[str] = []         # mutable defaults are copied for every instance

    DriveCfg(stiffness=10.0).replace(stiffness=20.0).to_dict()

:func:`from_dict` builds one from a file's data; pydantic's errors become paths of that file.
"""

import copy as _copy
import dataclasses
import functools
import importlib.util
import inspect
import json
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, field
from typing import Annotated, Any, TypeVar, Union, cast, dataclass_transform, overload

from pydantic import AfterValidator, ConfigDict, Discriminator, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as pydantic_dataclass

from embodichain.utils.doors import install_extra
from embodichain.utils.errors import raise_problems, unknown_key, unknown_name

T = TypeVar("T")

_MAY_CHANGE = "may change when a run is resumed"
MayChange = Annotated[T, _MAY_CHANGE]
"""The type of a setting that does not affect the learned result: a resumed run may have another value."""

_PYDANTIC = ConfigDict(extra="forbid", arbitrary_types_allowed=True, validate_assignment=False, allow_inf_nan=False)
_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, tuple, frozenset)
_MANY = 200  # errors of one block, beyond these one line says that there are more
_ROUNDS = 20  # of leaving out wrong values; each shortens the data
_UNKNOWN_KEY = ("unexpected_keyword_argument", "extra_forbidden")
_UNKNOWN_TAG, _ABSENT_TAG = "union_tag_invalid", "union_tag_not_found"  # of the type of an object among several
_ABSENT_KEY = ("missing", "missing_argument", "missing_keyword_only_argument")


@overload
def configclass(cls: type[T], /) -> type[T]: ...
@overload
def configclass(*, frozen: bool = False) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(field,))
def configclass(cls: type[T] | None = None, /, *, frozen: bool = False) -> Any:
    """Make a class a configuration class; ``frozen``: refuse assignments to the instances' fields.

    It has ``copy(**kw)``, ``replace(**kw)``, ``to_dict()`` and ``validate(prefix="")``.
    """
    if cls is None:
        return lambda c: _make(c, frozen)
    return _make(cls, frozen)


def _missing() -> Any:
    return MISSING


def is_required(field: dataclasses.Field[Any]) -> bool:
    """Return whether a field of a config class must be given a value."""
    return field.default is MISSING and field.default_factory in (MISSING, _missing)


def changeable(cls: type, prefix: str = "") -> Iterator[str]:
    """Yield the dotted paths of the settings marked :data:`MayChange`, nested ones included, below ``prefix``."""
    for name, kind in typing.get_type_hints(cls, include_extras=True).items():
        path = f"{prefix}.{name}" if prefix else name
        if _MAY_CHANGE in typing.get_args(kind):
            yield path
        elif dataclasses.is_dataclass(kind):
            yield from changeable(cast(type, kind), path)


def _make(cls: type[T], frozen: bool) -> type[T]:
    for name in inspect.get_annotations(cls):
        value = cls.__dict__.get(name, MISSING)
        if value is MISSING:
            setattr(cls, name, field(default_factory=_missing))
        elif isinstance(value, dataclasses.Field) and value.default is value.default_factory is MISSING:
            value.default_factory = _missing
        elif not isinstance(value, (*_IMMUTABLE, dataclasses.Field, types.FunctionType, type)):
            setattr(cls, name, field(default_factory=functools.partial(_copy.deepcopy, value)))
    methods = {"copy": replace, "replace": replace, "to_dict": to_dict, "validate": _validate}
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)
    return cast("type[T]", pydantic_dataclass(cls, config=_PYDANTIC, frozen=frozen))


def replace(self: T, **changes: Any) -> T:
    """Return a deep copy with some fields changed; the changes are checked like any other value."""
    values = {
        f.name: _copy.deepcopy(getattr(self, f.name))
        for f in dataclasses.fields(cast(Any, self))
        if f.init and f.name not in changes and getattr(self, f.name) is not MISSING
    }
    return type(self)(**values, **changes)


def to_dict(self: Any) -> dict[str, Any]:
    """Return nested plain dictionaries; callables become their ``module.name``, missing fields are left out."""
    return {
        f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self) if getattr(self, f.name) is not MISSING
    }


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return value.to_dict() if hasattr(value, "to_dict") else dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (type, types.FunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    return value


def _validate(self: Any, prefix: str = "") -> list[str]:
    """Return the dotted names, below ``prefix``, of the required fields without a value, nested ones included."""
    missing: list[str] = []
    for f in dataclasses.fields(self):
        name = f"{prefix}.{f.name}" if prefix else f.name
        missing += _missing_in(getattr(self, f.name), name)
    return missing


def _missing_in(value: Any, name: str) -> list[str]:
    if value is MISSING:
        return [name]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return value.validate(name) if hasattr(value, "validate") else []
    if isinstance(value, Mapping):
        return [m for key, item in value.items() for m in _missing_in(item, f"{name}.{key}")]
    if isinstance(value, (list, tuple)):
        return [m for i, item in enumerate(value) for m in _missing_in(item, f"{name}[{i}]")]
    return []


def _has_ray_tracer(value: bool) -> bool:
    if value and importlib.util.find_spec("mujoco_warp") is None:
        raise ValueError(f"ray tracing needs the package mujoco_warp: {install_extra('raytrace')}")
    return value


RayTracing = Annotated[bool, AfterValidator(_has_ray_tracer)]
"""Type of a config's ``enable_rt``; true only where the extra ``raytrace`` is installed."""


def from_dict(cls: type[T], data: Any, place: str, noun: str = "key") -> T:
    """Build a config class from plain data; a ConfigError has all of its errors, one per line.

    Types are strict where JSON has the type: ``"4"`` is no number and ``1`` is no bool, but integers stand for floats
    and lists for tuples. Data with Python objects among them cannot come from a file; they are converted as far as
    pydantic converts, but for functions, which may stand where a file names one.

    Args:
        data: data as the user wrote it.
        place: place of the data, put before each path in the messages.
        noun: noun for a key in the messages.
    """
    value, problems = parse(cls, data, place, noun)
    raise_problems(f"{path}: {problem}" for path, problem in problems.items())
    return cast("T", value)


def parse(cls: type[T], data: Any, place: str, noun: str = "key") -> tuple[T | None, dict[str, str]]:
    """Build a config class from data without its errors, so that the rest can be checked further.

    Arguments are as for :func:`from_dict`. A wrong value is replaced by ``{}`` if that is possible, else left out; a
    list keeps its length.

    Returns:
        The instance, with ``MISSING`` for absent required fields, or None with too many errors; and the problems by
        path.
    """
    value, errors = _build(cls, data)
    found: dict[str, list[str]] = {}
    endings: dict[str, str] = {}
    for item, keys in errors[:_MANY]:
        # A value that fits none of several types has an error for each of them; the deepest counts.
        is_choice = len(keys) < len(item["loc"])
        if is_choice and any(other[: len(keys)] == keys and len(other) > len(keys) for _, other in errors):
            continue
        path = _path(place, keys)
        problem, endings[path] = _describe(item, keys, cls, data, noun)
        if problem not in found.setdefault(path, []):
            found[path].append(problem)
    problems = {path: ", or ".join(those) + endings[path] for path, those in found.items()}
    problems |= dict.fromkeys(_missing_fields(cls, data, place), "required, but missing")
    if len(errors) > _MANY or len(problems) > _MANY:
        return None, dict(list(problems.items())[:_MANY]) | {place: "and more"}
    for _ in range(_ROUNDS):
        if not errors:
            break
        data = _without(data, {tuple(keys) for _, keys in errors})
        value, errors = _build(cls, data)
    return value, problems


def _build(cls: type[T], data: Any) -> tuple[T | None, list[tuple[Any, list[int | str]]]]:
    """Return the instance, or the errors, at most one more than ``_MANY``, each with its keys in the data."""
    adapter = _adapter(cast("Any", cls))
    try:
        text = json.dumps(data, default=_name_of_function)
    except TypeError:
        text = None
    try:
        if text is not None:
            # Only in its JSON mode does pydantic's strictness allow values beyond JSON, such as tuples.
            adapter.validate_json(text, strict=True)
        return adapter.validate_python(data), []
    except ValidationError as error:
        return None, [(item, _keys(item, cls, data)) for item in error.errors()[: _MANY + 1]]
    except (AttributeError, TypeError):
        if not any(_missing_fields(cls, data, "")):
            raise
        return None, []  # a validator of the class met MISSING, which is a problem of its own


def _name_of_function(value: Any) -> str:
    if callable(value):
        return getattr(value, "__name__", "")
    raise TypeError


def _without(data: Any, wrong: Collection[tuple[int | str, ...]], path: tuple[int | str, ...] = ()) -> Any:
    """Return data with ``{}`` in place of wrong values, and without values that are ``{}`` already."""
    if path in wrong:
        return {}
    if isinstance(data, Mapping):
        kept = {key: value for key, value in data.items() if (*path, key) not in wrong or value != {}}
        return {key: _without(value, wrong, (*path, key)) for key, value in kept.items()}
    if isinstance(data, list | tuple):
        kept_items = [(i, value) for i, value in enumerate(data) if (*path, i) not in wrong or value != {}]
        return [_without(value, wrong, (*path, i)) for i, value in kept_items]
    return data


@functools.cache
def _adapter(cls: type) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


_hints = functools.cache(functools.partial(typing.get_type_hints, include_extras=True))


def _describe(item: Any, keys: list[int | str], cls: type, data: Any, noun: str) -> tuple[str, str]:
    """Return the problem, and the got value as text."""
    if item["type"] in _UNKNOWN_KEY:
        key, known = str(keys[-1]), _known_keys(cls, keys[:-1], data)
        if key in known:  # of another member of a union
            return f"unknown {noun} in an object that does not say of which type it is", ""
        return unknown_key(key, known, noun), ""
    if item["type"] in _ABSENT_KEY and isinstance(item["loc"][-1], int):
        return "too few values", f", got {_short(item['input'])}"
    if item["type"] in _ABSENT_KEY:
        return "required, but missing", ""
    if item["type"] == _UNKNOWN_TAG:
        return unknown_name(str(keys[-1]), item["ctx"]["tag"], item["ctx"]["expected_tags"][1:-1].split("', '")), ""
    if item["type"] == _ABSENT_TAG:
        return f"must be an object with '{_tag_key(item)}'", f", got {_short(item['input'])}"
    return item["msg"].removeprefix("Value error, "), f", got {_short(item['input'])}"


def _short(value: Any) -> str:
    """Return a value as text, cut off after 500 characters."""
    text = repr(value)
    return text if len(text) <= 500 else f"{text[:500]}..."


def _keys(item: Any, cls: type, data: Any) -> list[int | str]:
    """Return the part of an error's location that is in the data: without the names of a union's members.

    The last key may be absent: something required, or a default that does not fit the data.
    """
    keys: list[int | str] = []
    loc, is_absent, inside_data = item["loc"], item["type"] in _ABSENT_KEY, data
    for i, part in enumerate(loc):
        if _has(inside_data, part):
            inside_data = inside_data[part]
            keys.append(part)
        elif isinstance(inside_data, Mapping) and i == len(loc) - 1:
            keys += [part] if is_absent or part in _known_keys(cls, keys, data) else []
    if item["type"] == _UNKNOWN_TAG:
        keys.append(_tag_key(item))
    return keys


def _tag_key(item: Any) -> str:
    """Return the key that says the type of an object, of an error about it."""
    return str(item["ctx"]["discriminator"]).strip("'()")  # the key, or the function of the same name that reads it


def _has(data: Any, part: int | str) -> bool:
    if isinstance(data, list | tuple):
        return isinstance(part, int) and 0 <= part < len(data)
    return isinstance(data, Mapping) and part in data


def _path(place: str, keys: Sequence[int | str]) -> str:
    path = place + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return path.lstrip(".")


def _known_keys(cls: type, keys: Sequence[int | str], data: Any) -> list[str]:
    """Return the field names of the config classes that may stand at a place inside another."""
    kinds = _possible(list(_members(cls)), data)
    for key in keys:
        data = data[key]
        kinds = _possible([member for kind in kinds for inner in _inner(kind, key) for member in _members(inner)], data)
    classes = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    return list(dict.fromkeys(f.name for kind in classes for f in dataclasses.fields(kind)))


def _possible(kinds: list[Any], data: Any) -> list[Any]:
    """Return the config class that data name among several, or all kinds where they name none."""
    is_object = isinstance(data, Mapping)
    return [kind for kind in kinds if is_object and dataclasses.is_dataclass(kind) and _is_tagged(kind, data)] or kinds


def _members(kind: Any) -> Iterator[Any]:
    """Yield the members of a union, or the type itself."""
    if typing.get_origin(kind) is Annotated:
        yield from _members(typing.get_args(kind)[0])
    elif typing.get_origin(kind) in (Union, types.UnionType):
        for member in typing.get_args(kind):
            yield from _members(member)
    else:
        yield kind


def _inner(kind: Any, key: int | str) -> list[Any]:
    """Return the types of the value under a key in a value of a type."""
    if dataclasses.is_dataclass(kind):
        hints = _hints(cast(Any, kind))
        return [hints[str(key)]] if key in hints else []
    arguments = [argument for argument in typing.get_args(kind) if argument is not Ellipsis]
    return arguments[-1:]  # list[X], tuple[X, ...], dict[K, X]


def _missing_fields(kind: Any, data: Any, place: str) -> list[str]:
    """Return the paths of all required fields that the data do not have, nested ones included."""
    if not isinstance(data, (Mapping, list, tuple)):
        return []
    kinds = list(_members(kind))
    found: list[str] = []
    classes = [k for k in kinds if dataclasses.is_dataclass(k)]
    if isinstance(data, Mapping) and classes:
        kinds = classes if len(classes) == 1 else _tagged(kind, classes, data)
        fields = [f for k in kinds for f in dataclasses.fields(k)]
        found = [_path(place, [f.name]) for f in fields if f.name not in data and is_required(f)]
    for key, value in data.items() if isinstance(data, Mapping) else enumerate(data):
        for inner in [inner for k in kinds for inner in _inner(k, key)]:
            found += _missing_fields(inner, value, _path(place, [key]))
    return found


def _tagged(kind: Any, classes: list[Any], data: Mapping[str, Any]) -> list[Any]:
    """Return the classes of a union that data name, or that stand for data which name none."""
    if found := [cls for cls in classes if _is_tagged(cls, data)]:
        return found
    marks = typing.get_args(kind)[1:] if typing.get_origin(kind) is Annotated else ()
    tags = [
        mark.discriminator(data) for mark in marks if isinstance(mark, Discriminator) and callable(mark.discriminator)
    ]
    return [
        cls for cls in classes if any(f.default in tags for f in dataclasses.fields(cls) if isinstance(f.default, str))
    ]


def _is_tagged(cls: Any, data: Mapping[str, Any]) -> bool:
    """Return whether the data name this config class among several, as ``shape_type`` does."""
    return any(isinstance(f.default, str) and data.get(f.name) == f.default for f in dataclasses.fields(cls))
