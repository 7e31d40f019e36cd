"""Pydantic's errors in the words of the user's file."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from embodichain.utils.errors import ConfigError, nearest

__all__ = ["from_dict"]

T = TypeVar("T")


def from_dict(cls: type[T], data: dict[str, Any], place: str) -> T:
    """Build a config class from plain data.

    Args:
        cls: a ``@configclass``.
        data: what the user wrote.
        place: where it stands, put before each path in the messages.

    Returns:
        The instance.

    Raises:
        ConfigError: with every error of the data, a line each: path, problem and what was got.
    """
    try:
        value: T = TypeAdapter(cls).validate_python(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_line(item, data, cls, place) for item in error.errors())) from error
    missing = value.validate(place)  # type: ignore[attr-defined]
    if missing:
        raise ConfigError("\n".join(f"{name}: required, but missing" for name in missing))
    return value


def _line(error: Any, data: Any, cls: type, place: str) -> str:
    path = place + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error["loc"])
    path = path.lstrip(".")
    if error["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        known = _field_names(cls) if len(error["loc"]) == 1 else []
        return f"{path}: unknown key.{nearest(str(error['loc'][-1]), known)}"
    return f"{path}: {error['msg']}, got {error['input']!r}"


def _field_names(cls: type) -> list[str]:
    return list(getattr(cls, "__dataclass_fields__", {}))
