"""Ctrl-C while a program still imports its modules."""

from __future__ import annotations

import sys
from types import TracebackType


def end_quietly_when_interrupted() -> None:
    """Let an uncaught Ctrl-C print one line and no traceback, in a program with slow imports.

    The process ends by the signal, which a shell shows as 130.
    """
    sys.excepthook = _show


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)
