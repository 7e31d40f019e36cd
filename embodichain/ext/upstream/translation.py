"""Moves the values of a config in another layout to ours, and collects notes on it for the user."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Self

from embodichain.utils import logger

_LONGEST = 60  # characters of a value in a message


@dataclass
class Translation:
    """A config's plain data on its way to our layout; null means, as in the other layout, that a key is not given.

    Attributes:
        data: the config, or an object in it; changed in place.
        place: prefix of the paths in messages.
        problems: lines about unreadable keys.
        moved: moved keys, as ``their path -> our path``.
        unused: keys without a counterpart here that change no result.
    """

    data: dict[str, Any]
    place: str = ""
    problems: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)

    def inside(self, path: str, value: Any) -> Self:
        """Return the same for ``value`` at ``path``; for anything but an object, an empty one."""
        return replace(self, data=value if isinstance(value, dict) else {}, place=f"{self.place}{path}.")

    def take_object(self, path: str) -> Self:
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
        """Set a value as ``put`` does without a report; return whether it was, which a value there already prevents."""
        *parents, key = path.split(".")
        node = self.data
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                return False  # a wrong type, which the parse reports
        if key in node:
            self.refuse(written, f"is another form of '{self.place}{path}', which is given too")
            return False
        node[key] = value
        return True

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

    def report(self, what: str) -> None:
        """Log moved and unused keys, in a warning each."""
        if self.moved:
            logger.log_warning(f"{what} in another layout (deprecated), read as: {', '.join(self.moved)}")
        if self.unused:
            logger.log_warning(f"{what}: without counterpart, not used: {', '.join(self.unused)}")


def _text(value: Any) -> str:
    """Return a short form of a value for a message."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
