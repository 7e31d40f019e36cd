"""The one exception that stands for a mistake in what the user wrote."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["ConfigError", "nearest", "unknown_name"]


class ConfigError(ValueError):
    """The user's input cannot be used; the message names the place, what was got and what is allowed."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the known name closest to ``name``, or an empty string."""
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{match[0]}'?" if match else ""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that is not there: what was got, the nearest, and all there is."""
    names = sorted(known)
    listed = ", ".join(names) if names else "none"
    return f"unknown {kind} '{name}'.{nearest(name, names)} Known: {listed}"
