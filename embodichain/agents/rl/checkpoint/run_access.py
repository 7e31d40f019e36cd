"""Locks and link checks of a run's folder."""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from embodichain.utils import ConfigError, logger
from embodichain.utils.system import lock_file, open_without_links

LOCK = "run.lock"

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # errors of a file system without locks
_POLL = 0.2  # s


class RunLock:
    """Locks a run's folder against a second training, until it is released or this process ends.

    The lock is the kernel's (``flock``) on the file ``run.lock``, which names its holder. It
    ends with the process, so a file that was left behind does no harm. Over NFS it covers other machines if the server
    has locks (version 4, or lockd) and the mount does not have ``local_lock``.
    """

    def __init__(self) -> None:
        self._file: IO[str] | None = None

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def take(self, folder: Path, patience: float = 0.0) -> None:
        """Take the lock of a run's folder; wait ``patience`` seconds for another process to end.

        Raises:
            ConfigError: another process trains in it.
        """
        path, deadline = folder / LOCK, time.monotonic() + patience
        # Not truncated: it may have the name of another holder.
        self._file = file = open(path, "a+", encoding="utf-8", opener=open_without_links)  # noqa: SIM115 (held)
        while True:
            try:
                lock_file(file.fileno())
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    file.seek(0)
                    holder = file.read(100).strip() or "another process"
                    file.close()
                    self._file = None
                    raise ConfigError(
                        f"{folder}: {holder} trains in this folder; wait for its end, or stop it"
                    ) from None
                time.sleep(_POLL)
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                logger.log_warning(
                    f"{path}: this file system has no locks ({error.strerror}): nothing keeps a second training out of "
                    "this folder, so see to it that there is none"
                )
                break
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()

    def release(self) -> None:
        """Release the lock, if it is held."""
        if self._file is not None:
            with suppress(OSError):
                self._file.truncate(0)  # without the name of a former holder
            self._file.close()
            self._file = None


def check_links(folder: Path, names: Sequence[str] = (".",)) -> None:
    """Check that a run's folder, which may be untrusted, has no links out of it; a ConfigError names one.

    Args:
        names: the entries to check; default: all.
    """
    root = os.path.realpath(folder)
    for path in (path for name in names for path in (folder / name, *(folder / name).rglob("*"))):
        parts = path.relative_to(folder).parts
        is_wandbs = parts[:1] == ("wandb",) and len(parts) > 1  # it keeps links to its own logs, and replaces them
        if path.is_symlink() and not is_wandbs and not Path(os.path.realpath(path)).is_relative_to(root):
            raise ConfigError(
                f"{path}: a link that leads out of the run's folder, which would be read or written through it. If "
                "it is yours, put what it leads to in its place"
            )
