"""Typed configs from plain data, with pydantic's errors as paths of the user's file."""

import dataclasses
import functools
import importlib.util
import json
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, Discriminator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from embodichain.utils.configclass import is_required
from embodichain.utils.doors import install_extra
from embodichain.utils.errors import raise_problems, unknown_key, unknown_name

T = TypeVar("T")


def _has_ray_tracer(value: bool) -> bool:
    if value and importlib.util.find_spec("mujoco_warp") is None:
        problem = f"ray tracing needs the package mujoco_warp: {install_extra('raytrace')}"
        raise PydanticCustomError("ray_tracing", "{problem}", {"problem": problem})
    return value


RayTracing = Annotated[bool, AfterValidator(_has_ray_tracer)]
"""Type of a config's ``enable_rt``; true only where the extra ``raytrace`` is installed."""

_MANY = 200  # errors of one block, beyond these one line says that there are more
_ROUNDS = 20  # of leaving out wrong values; each shortens the data
_UNKNOWN_KEY = ("unexpected_keyword_argument", "extra_forbidden")
_UNKNOWN_TAG, _ABSENT_TAG = "union_tag_invalid", "union_tag_not_found"  # of the type of an object among several
_ABSENT_KEY = ("missing", "missing_argument", "missing_keyword_only_argument")


def from_dict(cls: type[T], data: Any, place: str, noun: str = "key") -> T:
    """Build a config class from plain data.

    Types are strict where JSON has the type: ``"4"`` is no number and ``1`` is no bool, but integers stand for floats
    and lists for tuples. Data with Python objects among them cannot come from a file; they are converted as far as
    pydantic converts, but for functions, which may stand where a file names one.

    Args:
        data: data as the user wrote it.
        place: place of the data, put before each path in the messages.
        noun: noun for a key in the messages.

    Raises:
        ConfigError: all errors of the data, a line each: path, problem, the value and the allowed values.
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
    value, errors = _validate(cls, data)
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
    problems |= dict.fromkeys(_missing(cls, data, place), "required, but missing")
    if len(errors) > _MANY or len(problems) > _MANY:
        return None, dict(list(problems.items())[:_MANY]) | {place: "and more"}
    for _ in range(_ROUNDS):
        if not errors:
            break
        data = _without(data, {tuple(keys) for _, keys in errors})
        value, errors = _validate(cls, data)
    return value, problems


def _validate(cls: type[T], data: Any) -> tuple[T | None, list[tuple[Any, list[int | str]]]]:
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
        if not any(_missing(cls, data, "")):
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


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


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
    if get_origin(kind) is Annotated:
        yield from _members(get_args(kind)[0])
    elif get_origin(kind) in (Union, types.UnionType):
        for member in get_args(kind):
            yield from _members(member)
    else:
        yield kind


def _inner(kind: Any, key: int | str) -> list[Any]:
    """Return the types of the value under a key in a value of a type."""
    if dataclasses.is_dataclass(kind):
        hints = _hints(cast(Any, kind))
        return [hints[str(key)]] if key in hints else []
    arguments = [argument for argument in get_args(kind) if argument is not Ellipsis]
    return arguments[-1:]  # list[X], tuple[X, ...], dict[K, X]


def _missing(kind: Any, data: Any, place: str) -> list[str]:
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
            found += _missing(inner, value, _path(place, [key]))
    return found


def _tagged(kind: Any, classes: list[Any], data: Mapping[str, Any]) -> list[Any]:
    """Return the classes of a union that data name, or that stand for data which name none."""
    if found := [cls for cls in classes if _is_tagged(cls, data)]:
        return found
    marks = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    tags = [
        mark.discriminator(data) for mark in marks if isinstance(mark, Discriminator) and callable(mark.discriminator)
    ]
    return [
        cls for cls in classes if any(f.default in tags for f in dataclasses.fields(cls) if isinstance(f.default, str))
    ]


def _is_tagged(cls: Any, data: Mapping[str, Any]) -> bool:
    """Return whether the data name this config class among several, as ``shape_type`` does."""
    return any(isinstance(f.default, str) and data.get(f.name) == f.default for f in dataclasses.fields(cls))
