"""Child processes of ours, which end with their parent, also after SIGKILL."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embodichain.utils.system import sees_parent_end

_VARIABLE = "EMBODICHAIN_PARENT"
_SAFE_PATH = "PYTHONSAFEPATH"
_ROOT = str(Path(__file__).resolve().parents[2])
_PERIOD = 0.5  # s between checks


def child_variables() -> dict[str, str]:
    """Return the environment variables of a child process: it ends with this one, and has the same package.

    A file ``pickle.py`` or ``logging.py`` in the working directory does not run in place of Python's.
    """
    paths = [*([] if "site-packages" in _ROOT else [_ROOT]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {_VARIABLE: str(os.getpid()), _SAFE_PATH: "1", "PYTHONPATH": os.pathsep.join(paths)}


@contextmanager
def starting_workers() -> Iterator[None]:
    """Let the processes of ``multiprocessing`` that are started in the block run no file of the working directory."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        os.environ.pop(_SAFE_PATH)
        if before is not None:
            os.environ[_SAFE_PATH] = before


def end_with_parent() -> None:
    """Send this process SIGTERM when its parent process is gone, for instance after SIGKILL.

    Only if the parent is a process of ours (see :func:`child_variables`) or torchrun: a training started by a shell
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
