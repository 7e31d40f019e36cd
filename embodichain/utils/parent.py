"""Processes that end with the one that has started them, however that one ends."""

from __future__ import annotations

import os
import signal
import threading
import time

_VARIABLE = "EMBODICHAIN_PARENT"
_PERIOD = 0.5  # s between two looks


def with_this_parent() -> dict[str, str]:
    """Return the environment variable that names the parent process, with which the child ends."""
    return {_VARIABLE: str(os.getpid())}


def end_with_parent() -> None:
    """Send this process SIGTERM once its parent process is gone, as after SIGKILL.

    Only where that is a process of ours (see :func:`with_this_parent`) or torchrun: a training that a shell has left
    behind on purpose continues.
    """
    named = os.environ.pop(_VARIABLE, None)  # what this process starts itself has another parent
    if named is not None:
        parent = int(named)
    elif "TORCHELASTIC_RUN_ID" in os.environ:
        parent = os.getppid()
    else:
        return
    threading.Thread(target=_watch, args=[parent], name="parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PERIOD)
    os.kill(os.getpid(), signal.SIGTERM)
