"""Reading of files that somebody else may have put there."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

__all__ = ["read_bytes", "read_text"]


def read_bytes(path: str | Path) -> bytes:
    """Return a regular file's content.

    A pipe would let the reader wait for a writer for ever, and a device such as ``/dev/zero`` has no end.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    # Not to block: opening a pipe waits for its other end. Regular files know no such waiting.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        return file.read()


def read_text(path: str | Path) -> str:
    """Return a regular file's content as UTF-8 text.

    Raises:
        OSError: as :func:`read_bytes`.
        UnicodeDecodeError: it is no UTF-8.
    """
    return read_bytes(path).decode("utf-8")
