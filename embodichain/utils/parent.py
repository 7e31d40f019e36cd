"""Processes that end with their parent process, also after SIGKILL."""

from __future__ import annotations

import os
import signal
import threading
import time

from embodichain.utils.system import sees_parent_end

_VARIABLE = "EMBODICHAIN_PARENT"
_PERIOD = 0.5  # s between checks


def with_this_parent() -> dict[str, str]:
    """Return the environment variable that names this process as the parent, with which a child ends."""
    return {_VARIABLE: str(os.getpid())}


def end_with_parent() -> None:
    """Send this process SIGTERM when its parent process is gone, for instance after SIGKILL.

    Only if the parent is a process of ours (see :func:`with_this_parent`) or torchrun: a training started by a shell
    survives it. Not on Windows, where a process does not notice it.
    """
    named = os.environ.pop(_VARIABLE, None)  # not for children of this process
    if named is not None:
        parent = int(named)
    elif "TORCHELASTIC_RUN_ID" in os.environ:
        parent = os.getppid()
    else:
        return
    if not sees_parent_end():
        return
    threading.Thread(target=_watch, args=[parent], name="parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PERIOD)
    os.kill(os.getpid(), signal.SIGTERM)
