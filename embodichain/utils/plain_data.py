"""Limits for what a config file may hold, so that whatever reads it after this need not be afraid of it."""

from __future__ import annotations

import math
from typing import Any

from embodichain.utils.errors import ConfigError

__all__ = ["check_plain"]

_DEPTH = 40
_COUNT = 500_000
_INTEGER = 2**63


def check_plain(data: Any) -> None:
    """Check plain data: how deep, how much, and that numbers are finite and texts can be shown.

    Values that stand in several places, as YAML's aliases do, count in each of them.

    Raises:
        ConfigError: too much or too deep; a number that is not finite or needs more than 64 bits; a text with half a
            character or a zero byte.
    """
    stack: list[tuple[Any, str, int]] = [(data, "", 0)]
    count = 0
    while stack:
        value, place, depth = stack.pop()
        count += 1
        if count > _COUNT:
            raise ConfigError(f"{place}: too much: a config has at most {_COUNT:,} values")
        if isinstance(value, (dict, list)):
            if depth == _DEPTH:
                raise ConfigError(f"{place[:200]}...: nested too deeply: at most {_DEPTH} levels")
            if isinstance(value, dict):
                for key, inner in value.items():
                    _check_text(key, place)
                    stack.append((inner, f"{place}.{key}" if place else key, depth + 1))
            else:
                stack += ((inner, f"{place}[{i}]", depth + 1) for i, inner in enumerate(value))
        elif isinstance(value, str):
            _check_text(value, place)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{place}: must be a finite number, got {value}")
        elif isinstance(value, int) and not -_INTEGER <= value < _INTEGER:
            raise ConfigError(f"{place}: must be a number of at most 64 bits")


def _check_text(text: str, place: str) -> None:
    """Check that a text, or a key in a place, can be shown and be part of a path."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        shown = text.encode("ascii", errors="backslashreplace").decode()[:100]
        raise ConfigError(f"{place}: must be text without zero bytes and half characters, got '{shown}'")
