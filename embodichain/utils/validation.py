"""Pydantic's errors in the words of the user's file."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from embodichain.utils.configclass import is_required
from embodichain.utils.errors import ConfigError, unknown_key

__all__ = ["RayTracing", "from_dict"]

T = TypeVar("T")


def _has_ray_tracer(value: bool) -> bool:
    if value and importlib.util.find_spec("mujoco_warp") is None:
        problem = "ray tracing needs the package mujoco_warp: pip install 'embodichain-mujoco[raytrace]'"
        raise PydanticCustomError("ray_tracing", "{problem}", {"problem": problem})
    return value


RayTracing = Annotated[bool, AfterValidator(_has_ray_tracer)]
"""Of a config's ``enable_rt``; true where the extra ``raytrace`` is installed."""

_MANY = 200  # errors of one block, beyond which nobody reads on
_UNKNOWN_KEY = ("unexpected_keyword_argument", "extra_forbidden")
_ABSENT_KEY = ("missing", "missing_argument", "missing_keyword_only_argument")


def from_dict(cls: type[T], data: Any, place: str, noun: str = "key") -> T:
    """Build a config class from plain data.

    Types are strict where JSON has the type: ``"4"`` is no number and ``1`` is no bool, but integers stand for floats
    and lists for tuples. Data with Python objects among them cannot come from a file; they are converted as far as
    pydantic converts.

    Args:
        cls: a ``@configclass``.
        data: what the user wrote.
        place: where it stands, put before each path in the messages.
        noun: what a key is called in the messages.

    Returns:
        The instance.

    Raises:
        ConfigError: with every error of the data, a line each: path, problem, what was got and what is allowed.
    """
    problems: dict[str, list[str]] = {}
    endings: dict[str, str] = {}
    value: T | None = None
    has_more = False
    try:
        value = _validate(cls, data)
    except ValidationError as error:
        items = [(item, _keys(item, cls, data)) for item in error.errors()[:_MANY]]
        has_more = error.error_count() > len(items)
        for item, keys in items:
            # A value that fits none of several types has an error for each of them; the one that leads furthest counts.
            is_choice = len(keys) < len(item["loc"])
            if is_choice and any(other[: len(keys)] == keys and len(other) > len(keys) for _, other in items):
                continue
            path = _path(place, keys)
            problem, endings[path] = _describe(item, keys, cls, data, noun)
            if problem not in problems.setdefault(path, []):
                problems[path].append(problem)
    for path in _missing(cls, data, place):
        problems[path], endings[path] = ["required, but missing"], ""
    if value is None or problems:
        lines = [f"{p}: {', or '.join(problems[p])}{endings[p]}" for p in problems]
        has_more = has_more or len(lines) > _MANY
        raise ConfigError("\n".join([*lines[:_MANY], *([f"{place}: and more"] if has_more else [])]))
    return value


def _validate(cls: type[T], data: Any) -> T:
    adapter = _adapter(cast(Any, cls))
    try:
        text = json.dumps(data)
    except TypeError:
        text = None
    if text is not None:
        # Only in its JSON mode does pydantic's strictness allow what JSON cannot say, such as tuples.
        adapter.validate_json(text, strict=True)
    value: T = adapter.validate_python(data)
    return value


@functools.cache
def _adapter(cls: type) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _describe(item: Any, keys: list[int | str], cls: type, data: Any, noun: str) -> tuple[str, str]:
    """Return what is wrong, and what was got."""
    if item["type"] in _UNKNOWN_KEY:
        return unknown_key(str(keys[-1]), _known_keys(cls, keys[:-1], data), noun), ""
    if item["type"] in _ABSENT_KEY and isinstance(item["loc"][-1], int):
        return "too few values", f", got {_short(item['input'])}"
    if item["type"] in _ABSENT_KEY:
        return "required, but missing", ""
    return item["msg"].removeprefix("Value error, "), f", got {_short(item['input'])}"


def _short(value: Any) -> str:
    """Return a value as it is written, but for what is longer than a few lines."""
    text = repr(value)
    return text if len(text) <= 500 else f"{text[:500]}..."


def _keys(item: Any, cls: type, data: Any) -> list[int | str]:
    """Return the part of an error's location that is in the data: without the names of a union's members.

    The last key may be absent: something required, or a default that does not fit what was written.
    """
    keys: list[int | str] = []
    loc, is_absent, inside_data = item["loc"], item["type"] in _ABSENT_KEY, data
    for i, part in enumerate(loc):
        if _has(inside_data, part):
            inside_data = inside_data[part]
            keys.append(part)
        elif isinstance(inside_data, Mapping) and i == len(loc) - 1:
            keys += [part] if is_absent or part in _known_keys(cls, keys, data) else []
    return keys


def _has(data: Any, part: int | str) -> bool:
    if isinstance(data, list | tuple):
        return isinstance(part, int) and 0 <= part < len(data)
    return isinstance(data, Mapping) and part in data


def _path(place: str, keys: Sequence[int | str]) -> str:
    path = place + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return path.lstrip(".")


def _known_keys(cls: type, keys: Sequence[int | str], data: Any) -> list[str]:
    """Return the field names of the config classes that may stand at a place inside another."""
    kinds = list(_members(cls))
    for key in keys:
        data = data[key]
        kinds = [member for kind in kinds for inner in _inner(kind, key) for member in _members(inner)]
    classes = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    tagged = [kind for kind in classes if _is_tagged(kind, data)]
    return list(dict.fromkeys(f.name for kind in tagged or classes for f in dataclasses.fields(kind)))


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
    """Return the type of what stands in a value of a type under a key."""
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
        kinds = classes if len(classes) == 1 else [k for k in classes if _is_tagged(k, data)]
        fields = [f for k in kinds for f in dataclasses.fields(k)]
        found = [_path(place, [f.name]) for f in fields if f.name not in data and is_required(f)]
    for key, value in data.items() if isinstance(data, Mapping) else enumerate(data):
        for inner in [inner for k in kinds for inner in _inner(k, key)]:
            found += _missing(inner, value, _path(place, [key]))
    return found


def _is_tagged(cls: Any, data: Mapping[str, Any]) -> bool:
    """Return whether the data name this config class among several, as ``shape_type`` does."""
    return any(isinstance(f.default, str) and data.get(f.name) == f.default for f in dataclasses.fields(cls))
