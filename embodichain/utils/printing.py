"""Output that may fail without ending the work: a full disk, a closed pipe, a character that the terminal lacks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

_STREAMS = ("stdout", "stderr")


class _UnfailingStream:
    """A text stream whose failures to write are ignored; everything else is the stream's own."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text; what the encoding lacks becomes an escape such as ``\\xfc``."""
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
        """Write what is buffered, as far as that is possible now."""
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def printing_may_fail() -> Iterator[None]:
    """Let nothing that is written to ``sys.stdout`` or ``sys.stderr`` raise while this is entered.

    It covers ``print``, ``warnings``, ``logging`` and rich, here and in the code of users. Entered within itself, it
    does nothing more. What could not be written is tried again by the stream's own buffer, or lost.
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
            if getattr(sys, name) is own:  # else it was replaced meanwhile
                setattr(sys, name, stream)


def discard_unwritten_output() -> None:
    """At the end of a program: give up what cannot be written, for which the interpreter would exit with 120."""
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
    """Give the standard descriptors that were closed at the start (``2>&-``) to ``/dev/null``.

    The next file to be opened would get their numbers, and with them what is written to the descriptors directly.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
