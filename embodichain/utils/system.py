"""The operating system: processors, memory, locks, signals, processes; values unknown on a system are None.

This module imports nothing that loads OpenMP.
"""

import errno
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
    import resource
except ImportError:  # Windows
    fcntl = resource = None  # type: ignore[assignment]

_PROC = Path("/proc")  # on Linux
_PARENT = "EMBODICHAIN_PARENT"
_SAFE_PATH = "PYTHONSAFEPATH"
_ROOT = str(Path(__file__).resolve().parents[2])
_PERIOD = 0.5  # s between checks of the parent process


def count_processors() -> int:
    """Return the number of processors that this process may use; where that is unknown, the machine's."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def let_others_run() -> None:
    """Give the processor to another thread or process that waits for it."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0)


def peak_memory() -> int | None:
    """Return the most memory that this process has had so far, bytes."""
    if resource is None:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def limit_openmp_spinning(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let torch's idle threads sleep after some 0.1 ms, unless ``OMP_WAIT_POLICY`` is set already.

    OpenMP reads these variables once, when it is loaded: call this before torch is imported. `import embodichain` does.

    By default idle threads spin for milliseconds, and an update is several times slower as soon as another process
    needs a core. Waking a sleeping thread takes longer than a small operation; 2000 spins bridge the gap between two
    operations at little cost.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment["OMP_WAIT_POLICY"] = "PASSIVE"  # for OpenMPs other than GNU's, which torch's wheels have
        environment.setdefault("GOMP_SPINCOUNT", "2000")


def lock_file(descriptor: int) -> None:
    """Lock an open file until it is closed; a BlockingIOError if it is locked, an OSError without such locks."""
    if fcntl is None:
        raise OSError(errno.ENOSYS, "no locks")
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def open_without_links(path: str, flags: int) -> int:
    """Open a file for ``open(..., opener=open_without_links)``: a link in its place is an OSError."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals by which people and schedulers end a program: Ctrl-C, ``kill``, a closed terminal."""
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


# --- Processes ---


def process_exists(pid: int) -> bool | None:
    """Return whether there is a process with this id."""
    if not hasattr(os, "getpgid"):  # Windows, where a signal of any number would end it
        return None
    try:
        os.getpgid(pid)
    except PermissionError:  # another user's, on some systems
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def process_start(pid: int) -> str:
    """Return when a running process was started, in clock ticks since the machine's start; "" if unknown."""
    with suppress(OSError):  # no Linux
        return (_PROC / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    return ""


def worker_start_method(preload: Sequence[str]) -> str:
    """Return how to start worker processes that are no fork of this one, which would inherit the locks of its threads.

    Args:
        preload: modules that a server imports, if there is one, so that the second process starts at once.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return "spawn"
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(preload))
    return "forkserver"


def child_variables() -> dict[str, str]:
    """Return the environment variables of a child process: it ends with this one, and has the same package.

    A file ``pickle.py`` or ``logging.py`` in the working directory does not run in place of Python's.
    """
    paths = [*([] if "site-packages" in _ROOT else [_ROOT]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {_PARENT: str(os.getpid()), _SAFE_PATH: "1", "PYTHONPATH": os.pathsep.join(paths)}


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
    named = os.environ.pop(_PARENT, None)  # not for children of this process
    if (named is None and "TORCHELASTIC_RUN_ID" not in os.environ) or not hasattr(os, "killpg"):
        return
    parent = os.getppid() if named is None else int(named)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PERIOD)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()
