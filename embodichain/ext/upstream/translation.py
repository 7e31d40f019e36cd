"""Moves the values of a config in another layout to ours, and collects notes on it for the user."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from embodichain.utils import logger

__all__ = ["Translation"]

_LONGEST = 60  # characters of a value in a message


@dataclass
class Translation:
    """A config's plain data on its way to our layout; null means, as in the other layout, that a key is not given.

    Attributes:
        data: the config, or an object in it; changed in place.
        problems: lines about unreadable keys.
        place: prefix of the paths in messages.
        overridden: paths that overrides have set; such a value counts more than the same in the other layout.
        moved: moved keys, as ``their path -> our path``.
        unused: keys without a counterpart here that change no result.
        written: our path -> their path, of moved keys.
    """

    data: dict[str, Any]
    problems: list[str]
    place: str = ""
    overridden: Collection[str] = ()
    moved: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)

    def inside(self, path: str, value: Any) -> Translation:
        """Return the same for ``value`` at ``path``; for anything but an object, an empty one."""
        data = value if isinstance(value, dict) else {}
        return replace(self, data=data, place=f"{self.place}{path}.")

    def take_object(self, path: str) -> Translation:
        """Remove the object at ``path`` and return the same for it; an empty one if there is none."""
        value = self.take(path)
        if value is not None and not isinstance(value, dict):
            self.refuse(path, f"must be an object, got {_text(value)}")
        return self.inside(path, value)

    def get(self, path: str) -> Any:
        """Return the value at a dotted path; None if there is none."""
        node: Any = self.data
        for key in path.split("."):
            node = node.get(key) if isinstance(node, dict) else None
        return node

    def take(self, path: str) -> Any:
        """Remove and return the value at a dotted path; None if there is none."""
        parent, _, key = path.rpartition(".")
        node = self.get(parent) if parent else self.data
        return node.pop(key, None) if isinstance(node, dict) else None

    def put(self, path: str, value: Any, written: str, was: Any = None) -> None:
        """Set the value at ``path`` that the file has at ``written``, and report it.

        Args:
            was: the value in the file, where ours differs.
        """
        if self.set(path, value, written):
            theirs, ours = ("", "") if was is None else (f" {_text(was)}", f" {_text(value)}")
            self.moved.append(f"{self.place}{written}{theirs} -> {self.place}{path}{ours}")

    def set(self, path: str, value: Any, written: str) -> bool:
        """Set a value as ``put`` does without a report; return whether it counts.

        It is a problem if there is one already, unless an override has set one of the two.
        """
        *parents, key = path.split(".")
        node = self.data
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                return False  # a wrong type, which the parse reports
        if key in node and not self.counts_more(written, path):
            if not self.counts_more(path, written):
                self.refuse(written, f"is EmbodiChain's form of '{self.place}{path}', which is given too")
            return False
        node[key] = value
        self.written[self.place + path] = self.place + written
        return True

    def counts_more(self, path: str, other: str) -> bool:
        """Return whether an override has set the value at ``path``, and none that at ``other``."""
        return self.is_overridden(path) and not self.is_overridden(other)

    def is_overridden(self, path: str) -> bool:
        """Return whether an override has set the value at ``path``, above it or below it."""
        path = f"{self.place}{path}."
        return any(path.startswith(f"{key}.") or f"{key}.".startswith(path) for key in self.overridden)

    def move(self, old: str, new: str) -> None:
        """Move the value at ``old``, if there is one, to ``new``."""
        if (value := self.take(old)) is not None:
            self.put(new, value, old)

    def skip(self, path: str, reason: str = "") -> None:
        """Remove the value at ``path``, if there is one, as one without counterpart."""
        if (value := self.take(path)) is not None:
            self.unused.append(f"{self.place}{path} {_text(value)}" + (f" ({reason})" if reason else ""))

    def require(self, path: str, allowed: Collection[Any], reason: str) -> None:
        """Remove the value at ``path``, which is a problem unless this package behaves so anyway."""
        value = self.take(path)
        if value is not None and value not in allowed:
            self.refuse(path, f"must be {' or '.join(map(_text, allowed))}, got {_text(value)}: {reason}")

    def refuse(self, path: str, problem: str) -> None:
        """Add a line about the value at ``path``."""
        self.problems.append(f"{self.place}{path}: {problem}")

    def in_users_words(self, lines: Sequence[str]) -> list[str]:
        """Return lines about the data with the paths that the user's file has."""
        return [self._in_users_words(line) for line in lines]

    def _in_users_words(self, line: str) -> str:
        place, _, problem = line.partition(":")
        for ours, theirs in self.written.items():
            is_inside = place == ours or place.startswith((f"{ours}.", f"{ours}["))
            if is_inside and ours != theirs and "(set by the override '" not in line:
                return f"{theirs}: is '{place}' here:{problem}"
        return line

    def report(self, what: str) -> None:
        """Log moved and unused keys, in a warning each."""
        if self.moved:
            logger.log_warning(f"{what} in EmbodiChain's layout, read as: {', '.join(self.moved)}")
        if self.unused:
            logger.log_warning(f"{what}: without counterpart, not used: {', '.join(self.unused)}")


def _text(value: Any) -> str:
    """Return a short form of a value for a message."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
