"""Differences between Linux, macOS and Windows: processors, memory, locks, links, signals, processes.

The only module that calls system-specific functions; values unknown on a system are None.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

_LOCKED_BYTE = 2**30  # beyond the text of a locked file, since others cannot read a byte that Windows has locked
_PROC = Path("/proc")  # on Linux


def _optional(name: str) -> ModuleType | None:
    """Return a module of the standard library, None on systems that lack it."""
    try:
        return import_module(name)
    except ImportError:
        return None


_resource: Any = _optional("resource")
_fcntl: Any = _optional("fcntl")
_msvcrt: Any = _optional("msvcrt")


def count_processors() -> int:
    """Return the number of processors that this process may use; where that is unknown, the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def let_others_run() -> None:
    """Give the processor to another thread or process that waits for it."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0)


def load_average() -> float | None:
    """Return the mean number of running processes in the last minute."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def peak_memory() -> int | None:
    """Return the most memory that this process has had so far, bytes."""
    if _resource is None:
        return None
    peak: int = _resource.getrusage(_resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def total_memory() -> int | None:
    """Return the machine's memory, bytes."""
    if not hasattr(os, "sysconf"):
        return None
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except ValueError:  # a name that this system does not know
        return None


def config_folder() -> Path | None:
    """Return the folder for this user's settings, which need not exist; None for a user without a home."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "win32":
        place = Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming")
    elif sys.platform == "darwin":
        place = home / "Library" / "Application Support"
    else:
        place = Path(os.environ.get("XDG_CONFIG_HOME", ""))
        place = place if place.is_absolute() else home / ".config"  # as its specification says
    return place / "embodichain"


def lock_file(descriptor: int) -> None:
    """Lock an open file for this process, until it is closed.

    Raises:
        BlockingIOError: another process has locked it, or another descriptor of this one.
        OSError: the file system has no locks.
    """
    if _fcntl is not None:
        _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
        return
    os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
    try:
        _msvcrt.locking(descriptor, _msvcrt.LK_NBLCK, 1)
    except PermissionError as error:
        raise BlockingIOError(errno.EWOULDBLOCK, "locked") from error


def open_at_once(path: str, flags: int) -> int:
    """Open a file for ``open(..., opener=open_at_once)``, without waiting for a pipe's other end."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def open_without_links(path: str, flags: int) -> int:
    """Open a file for ``open(..., opener=open_without_links)``: a link in its place is an OSError."""
    if not hasattr(os, "O_NOFOLLOW") and os.path.islink(path):
        raise OSError(errno.ELOOP, "is a link", path)
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)


def open_privately(path: str, flags: int) -> int:
    """Open a file as :func:`open_without_links`, a new one for this user alone (on Windows the folder decides that)."""
    descriptor = open_without_links(path, flags)
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, 0o600)
    return descriptor


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, where folders can be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
    """Return when a running process was started, in the system's own words; "" if unknown."""
    with suppress(OSError):  # no Linux
        return (_PROC / str(pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    try:
        return subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals by which people and schedulers end a program: Ctrl-C, ``kill``, a closed terminal."""
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


def sees_parent_end() -> bool:
    """Return whether ``os.getppid`` changes when the parent process ends."""
    return hasattr(os, "killpg")


def without_ctrl_c() -> dict[str, Any]:
    """Return the arguments of ``subprocess.Popen`` for a process that the terminal's Ctrl-C does not reach."""
    if hasattr(os, "setsid"):
        return {"start_new_session": True}
    return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP")}  # noqa: B009 (Windows alone has it)


def worker_start_method(preload: Sequence[str]) -> str:
    """Return how to start worker processes that are no fork of this one, which would inherit the locks of its threads.

    Args:
        preload: modules that a server imports, if there is one, so that the second process starts at once.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return "spawn"
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(preload))
    return "forkserver"


def loopback_interface() -> str | None:
    """Return the name of the network interface that reaches this machine alone: ``lo``, or ``lo0`` on macOS."""
    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
