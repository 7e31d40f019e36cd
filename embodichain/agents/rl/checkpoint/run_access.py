"""Locks and link checks of a run's folder."""

from __future__ import annotations

import errno
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from embodichain.utils import ConfigError, logger
from embodichain.utils.system import lock_file, open_without_links

LOCK = "run.lock"

# Errors of a file system without locks.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_POLL = 0.2  # s


class RunLock:
    """Locks a run's folder against a second training, until it is released or this process ends.

    The lock is the kernel's (``flock``, on Windows of one byte) on the file ``run.lock``, which names its holder. It
    ends with the process, so a file that was left behind does no harm. Over NFS it covers other machines if the server
    has locks (version 4, or lockd) and the mount does not have ``local_lock``.
    """

    def __init__(self) -> None:
        self._file: IO[str] | None = None
        self._folder: Path | None = None

    def __enter__(self) -> RunLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def take(self, folder: Path, patience: float = 0.0) -> None:
        """Take the lock of a run's folder; wait ``patience`` seconds for another process to end.

        Raises:
            ConfigError: another process trains in it, or it cannot be written.
        """
        path = folder / LOCK
        try:
            # Not truncated: it may have the name of another holder.
            file = open(path, "a+", encoding="utf-8", opener=open_without_links)  # noqa: SIM115 (held until released)
        except OSError as error:
            raise ConfigError(f"run folder {folder.absolute()}: cannot be written: {error}") from error
        try:
            self._lock(file, path, time.monotonic() + patience)
        except BaseException:
            file.close()
            raise
        self._file, self._folder = file, folder

    def take_again(self) -> None:
        """Take the lock again after the folder was deleted and created again."""
        folder = self._folder
        if folder is not None:
            self.release()
            self.take(folder)

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._file is not None:
            with suppress(OSError):
                self._file.truncate(0)  # without the name of a former holder
            self._file.close()
            self._file = None

    def _lock(self, file: IO[str], path: Path, deadline: float) -> None:
        while True:
            try:
                lock_file(file.fileno())
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise ConfigError(_refusal(file, path)) from None
                time.sleep(_POLL)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise ConfigError(f"{path}: cannot be locked: {error.strerror}") from error
                logger.log_warning(
                    f"{path}: this file system has no locks ({error.strerror}): nothing keeps a second training out of "
                    "this folder, so see to it that there is none"
                )
                break
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}) + "\n")
        file.flush()


def _refusal(file: IO[str], path: Path) -> str:
    file.seek(0)
    try:
        holder = json.loads(file.read())
        holder_name = f"process {int(holder['pid'])} on {holder['host']!s:.100}"
    except (ValueError, KeyError, TypeError):
        holder_name = "another process, whose name is not yet known,"
    return f"{path.parent}: {holder_name} trains in this folder; wait for its end, or stop it"


def check_links(folder: Path, names: Sequence[str] | None = None) -> None:
    """Check that a run's folder, which may be untrusted, has no links out of it; a ConfigError names one.

    Args:
        names: the entries to check; None: all.
    """
    root = os.path.realpath(folder)
    for path in folder.rglob("*") if names is None else _below(folder / name for name in names):
        parts = path.relative_to(folder).parts
        is_wandbs = parts[0] == "wandb" and len(parts) > 1  # it keeps links to its own logs there, and replaces them
        if path.is_symlink() and not is_wandbs and not Path(os.path.realpath(path)).is_relative_to(root):
            raise ConfigError(
                f"{path}: a link that leads out of the run's folder, which would be read or written through it. If "
                "it is yours, put what it leads to in its place"
            )


def _below(tops: Iterable[Path]) -> Iterator[Path]:
    for top in tops:
        yield top
        yield from top.rglob("*")
