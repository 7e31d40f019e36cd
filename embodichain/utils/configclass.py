"""``@configclass``: typed configuration classes, checked when they are built.

A config class is a pydantic dataclass. Values that come from JSON are converted and checked against the
annotations, unknown names are refused, and nested config classes accept plain dictionaries::

    @configclass
    class DriveCfg:
        stiffness: float              # no default: required, reported by validate()
        names: list[str] = []         # mutable defaults are copied for every instance

    DriveCfg(stiffness=10.0).replace(stiffness=20.0).to_dict()
"""

import copy as _copy
import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, field
from typing import Annotated, Any, TypeVar, cast, dataclass_transform, get_args, get_type_hints, overload

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass as pydantic_dataclass

__all__ = ["MISSING", "MayChange", "changeable", "configclass", "field", "is_required", "replace", "to_dict"]

T = TypeVar("T")

_MAY_CHANGE = "may change when a run is resumed"
MayChange = Annotated[T, _MAY_CHANGE]
"""The type of a setting that does not affect the learned result: a resumed run may have another value."""

_PYDANTIC = ConfigDict(extra="forbid", arbitrary_types_allowed=True, validate_assignment=False, allow_inf_nan=False)
_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, tuple, frozenset)


@overload
def configclass(cls: type[T], /) -> type[T]: ...
@overload
def configclass(*, frozen: bool = False) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(field_specifiers=(field,))
def configclass(cls: type[T] | None = None, /, *, frozen: bool = False) -> Any:
    """Make a class a configuration class.

    Args:
        frozen: refuse assignments to the instances' fields.

    Returns:
        The class, with ``copy(**kw)``, ``replace(**kw)``, ``to_dict()`` and ``validate(prefix="")``.
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
    for name, kind in get_type_hints(cls, include_extras=True).items():
        path = f"{prefix}.{name}" if prefix else name
        if _MAY_CHANGE in get_args(kind):
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
    """Return the dotted names of the required fields that have no value, nested ones included.

    Args:
        prefix: put before each name, for example ``"robot"``.
    """
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
