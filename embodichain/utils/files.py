"""Files that others may have put there, read; and files that are complete or absent, written."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO


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


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that under its name there is always a complete one, even if the machine stops.

    It goes to a temporary file beside it, which takes the name when it is on the disk. Neither follows a link.
    """
    # Named by process and thread: each has its own file, and remove_unfinished knows the owner.
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_native_id()}.tmp")
    temporary.unlink(missing_ok=True)  # of a process that had the same number
    try:
        with open(temporary, "xb", opener=without_links) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # so that the name is on the disk, too
    finally:
        os.close(folder)


def without_links(path: str, flags: int) -> int:
    """Open a file for ``open(..., opener=without_links)``: a link in its place is an OSError."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def remove_unfinished(folder: Path) -> None:
    """Delete what processes that were killed left half written in a folder, and nothing of one that lives."""
    for file in folder.glob("*.tmp"):
        owner = re.search(r"\.(\d+)-\d+\.tmp$", file.name)
        if owner is None or int(owner[1]) == os.getpid() or not Path(f"/proc/{owner[1]}").exists():
            file.unlink(missing_ok=True)


def write_json(path: Path, data: object, indent: int | None = None) -> None:
    """Write plain data as JSON and a line's end; see :func:`write_atomically`."""
    text = json.dumps(data, indent=indent) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
