"""Reading of untrusted files, and atomic writing."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from embodichain.utils.errors import ConfigError
from embodichain.utils.system import open_at_once, open_privately, open_without_links, process_exists, sync_folder


def is_run_folder(folder: Path) -> bool:
    """Return whether a folder is that of a run, or of a cloning: it has checkpoints."""
    return (folder / "checkpoints").is_dir()


def read_bytes(path: str | Path) -> bytes:
    """Return a regular file's content.

    Pipes, which could block forever, and devices such as ``/dev/zero`` are refused.

    Raises:
        OSError: the file cannot be read, or is no regular file.
    """
    with open(path, "rb", opener=open_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(path))
        return file.read()


def read_text(path: str | Path) -> str:
    """Return a regular file's content as UTF-8 text.

    Raises:
        OSError: as :func:`read_bytes`.
        UnicodeDecodeError: the file is no UTF-8.
    """
    return read_bytes(path).decode("utf-8")


def check_replaceable(path: Path, mark: bytes) -> None:
    """Refuse to overwrite a file that an earlier export did not write: one without the ``mark`` in its content.

    Raises:
        ConfigError: there is such a file, or it cannot be read.
    """
    try:
        is_other = path.exists() and mark not in read_bytes(path)
    except OSError as error:
        raise ConfigError(f"--out: {path}: cannot be replaced: {error.strerror}") from error
    if is_other:
        raise ConfigError(f"--out: {path}: exists and is not from an earlier export; choose another name or delete it")


def write_atomically(path: Path, write: Callable[[IO[bytes]], object], *, private: bool = False) -> None:
    """Write a file atomically: a crash leaves the old or the new content. Links are not followed.

    Args:
        private: readable by this user alone.
    """
    # Unique per process and thread; remove_unfinished reads the process from the name.
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_native_id()}.tmp")
    temporary.unlink(missing_ok=True)  # of an earlier process with the same id
    try:
        with open(temporary, "xb", opener=open_privately if private else open_without_links) as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remove_unfinished(folder: Path) -> None:
    """Delete temporary files of killed processes in a folder, but none of running ones."""
    for file in folder.glob("*.tmp"):
        owner = re.search(r"\.(\d+)-\d+\.tmp$", file.name)
        if owner is None or int(owner[1]) == os.getpid() or not process_exists(int(owner[1])):
            with suppress(PermissionError):  # on Windows, which cannot tell whether it exists, but keeps its open files
                file.unlink(missing_ok=True)


def json_text(data: object, indent: int | None = None) -> str:
    """Return plain data as JSON, with null for numbers that are not finite, which JSON does not have."""
    return json.dumps(_finite(data), indent=indent)


def _finite(data: object) -> object:
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def write_json(path: Path, data: object, indent: int | None = None, *, private: bool = False) -> None:
    """Write plain data as :func:`json_text` with a final newline; see :func:`write_atomically`."""
    text = json_text(data, indent) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()), private=private)
