"""Plain data of config files: limits on their content, and their values by path."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from embodichain.utils.errors import ConfigError

_DEPTH = 40
_COUNT = 500_000
_KEY = 200
_INTEGER = 2**63

_Path = tuple[str | int, ...]


def check_plain(data: Any) -> None:
    """Check plain data: how deep, how much, and that numbers are finite and texts can be shown.

    Values in several places, such as YAML's aliases, count in each.

    Raises:
        ConfigError: too much or too deep; a key of more than 200 characters; a number that is not finite or needs more
            than 64 bits; a text with half a character or a zero byte.
    """
    stack: list[tuple[Any, _Path]] = [(data, ())]
    count = 0
    while stack:
        value, path = stack.pop()
        count += 1
        if count > _COUNT:
            raise ConfigError(f"{_at(path)}too much: a config has at most {_COUNT:,} values")
        if isinstance(value, dict | list):
            if len(path) == _DEPTH:
                raise ConfigError(f"{_at(path)}nested too deeply: at most {_DEPTH} levels")
            if isinstance(value, dict):
                for key in value:
                    _check_key(key, path)
            inside = value.items() if isinstance(value, dict) else enumerate(value)
            stack += ((inner, (*path, key)) for key, inner in inside)
        elif isinstance(value, str):
            _check_text(value, path)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{_at(path)}must be a finite number, got {value}")
        elif isinstance(value, int) and not -_INTEGER <= value < _INTEGER:
            raise ConfigError(f"{_at(path)}must be a number of at most 64 bits")


def _check_key(key: str, path: _Path) -> None:
    _check_text(key, path)
    if len(key) > _KEY:
        raise ConfigError(f"{_at(path)}a key has at most {_KEY} characters, got '{key[:50]}...'")


def _check_text(text: str, path: _Path) -> None:
    """Check that a text or key can be printed and be part of a path."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        shown = text.encode("ascii", errors="backslashreplace").decode()[:50]
        raise ConfigError(f"{_at(path)}must be text without zero bytes and half characters, got '{shown}'")


def _at(path: _Path) -> str:
    """Return a path as the beginning of a message; nothing for the data as a whole."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")
    shown = text if len(text) <= 300 else f"{text[:300]}..."
    return f"{shown}: " if path else ""


def as_json(data: dict[str, Any], place: str) -> dict[str, Any]:
    """Return data as read from a JSON file: lists for tuples, string keys, and Python's numbers for NumPy's.

    Raises:
        ConfigError: the data have values that JSON lacks.
    """
    try:
        plain: dict[str, Any] = json.loads(json.dumps(data, default=_as_number))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{place} holds more than a file can say: {error}") from error
    return plain


def _as_number(value: Any) -> Any:
    if isinstance(value, np.generic) and not isinstance(number := value.item(), np.generic):
        return number
    raise TypeError(f"{value!r:.100} of type {type(value).__name__}")


def leaves_by_path(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested mappings by their dotted paths below ``prefix``, such as ``trainer.seed``."""
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        path = f"{prefix}{key}"
        leaves |= leaves_by_path(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return leaves
