"""Exceptions with a message for the user: wrong input, a missing dependency, a failed command."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

MISSPELT = 0.85
"""Likeness of a name that is allowed to one that was probably meant."""

_LIKE = 0.6  # of one that is not allowed
_FEW = 8


class ConfigError(ValueError):
    """The user's input cannot be used; the message names the place, the value and the allowed values."""


class UnavailableError(RuntimeError):
    """This machine lacks something; the message names the package."""


class CommandFailedError(RuntimeError):
    """A command has failed though its input is right; the message says why."""

    exit_code = 1


def reason_of(error: Exception) -> str:
    """Return an error's message; of an OSError without its number and its path, which the line has already."""
    return str(getattr(error, "strerror", None) or error)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the known name closest to ``name``, or an empty string."""
    match = closest(name, known)
    return f" Did you mean '{match}'?" if match else ""


def closest(name: str, known: Iterable[str], likeness: float = _LIKE) -> str | None:
    """Return the known name closest to ``name``, or None if none is as like it as difflib's ``likeness``."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)), None)


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the message for an unknown name: the given name, the nearest known name, and all known names."""
    names = sorted(known)
    listed = ", ".join(names) if names else "none"
    return f"unknown {kind} '{name}'.{nearest(name, names)} Known: {listed}"


def unknown_key(key: str, known: Iterable[str], noun: str = "key") -> str:
    """Return the message for an unknown key: the nearest allowed key, and all of them if they are few."""
    names = list(known)
    hint = nearest(key, names)
    listed = f" Known: {', '.join(names) or 'none'}" if not hint or len(names) <= _FEW else ""
    return f"unknown {noun}.{hint}{listed}"


@contextmanager
def collected(problems: list[str], place: str = "") -> Iterator[None]:
    """Add the lines of a ConfigError to ``problems``, with ``place`` before each, and continue."""
    try:
        yield
    except ConfigError as error:
        problems += [place + line for line in str(error).splitlines()]


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Put ``place`` before each line of a ConfigError."""
    problems: list[str] = []
    with collected(problems, place):
        yield
    raise_problems(problems)


def raise_problems(problems: Iterable[str]) -> None:
    """Raise a ConfigError with a line for each problem, if there are any."""
    lines = list(dict.fromkeys(problems))
    if lines:
        raise ConfigError("\n".join(lines))
