"""Output that may fail without an error: a full disk, a closed pipe, a character that the terminal lacks."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

_STREAMS = ("stdout", "stderr")


def format_finite(value: float | None) -> str:
    """Return a number with four digits, or "not finite" for NaN, infinity and None, which files have for these."""
    return f"{value:.4g}" if value is not None and math.isfinite(value) else "not finite"


class _UnfailingStream:
    """A text stream that ignores failed writes; all other attributes are the stream's."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text; characters that the encoding lacks become escapes such as ``\\xfc``."""
        with suppress(OSError, ValueError):  # a ValueError where the stream is closed
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                encoding = self._stream.encoding
                self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts one after the other."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write the buffer, as far as possible."""
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def printing_may_fail() -> Iterator[None]:
    """Let no write to ``sys.stdout`` or ``sys.stderr`` raise inside the block.

    It covers ``print``, ``warnings``, ``logging`` and rich, also in users' code, and can be nested. Failed writes are
    repeated by the stream's buffer, or lost.
    """
    replaced = []
    for name in _STREAMS:
        stream = getattr(sys, name)
        if stream is not None and not isinstance(stream, _UnfailingStream):
            own = _UnfailingStream(stream)
            setattr(sys, name, own)
            replaced.append((name, own, stream))
    try:
        yield
    finally:
        for name, own, stream in replaced:
            if getattr(sys, name) is own:  # else it was replaced inside the block
                setattr(sys, name, stream)


def discard_unwritten_output() -> None:
    """Discard unwritten output at a program's end; the interpreter would exit with 120 because of it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):  # a stream without a descriptor, or one that is closed
                devnull = os.open(os.devnull, os.O_WRONLY)
                os.dup2(devnull, stream.fileno())
                os.close(devnull)
                stream.flush()


def open_closed_descriptors() -> None:
    """Open standard descriptors that were closed at the start (``2>&-``) on ``/dev/null``.

    Otherwise the next opened file gets their numbers, and with them the output.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
