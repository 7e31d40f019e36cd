"""Reading of regular files, atomic writing, and the folder below which a config's paths lead."""

import errno
import json
import math
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Annotated

from pydantic import Field

from embodichain.utils import logger
from embodichain.utils.errors import ConfigError
from embodichain.utils.system import process_exists

FileName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^/\\\x00-\x1f]+$")]
"""Part of a file's name: without slashes."""
SavePath = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f]+$")]
"""A folder that a config names; see :meth:`OutputFolder.place`."""


def is_run_folder(folder: Path) -> bool:
    """Return whether a folder belongs to a run or a cloning: it has checkpoints."""
    return (folder / "checkpoints").is_dir()


def read_bytes(path: str | Path) -> bytes:
    """Return a regular file's content. Pipes, which could block forever, and devices are refused by an OSError."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    return path.read_bytes()


def read_text(path: str | Path) -> str:
    """Return a regular file's content as UTF-8 text, as :func:`read_bytes`."""
    return read_bytes(path).decode("utf-8")


def check_replaceable(path: Path, mark: bytes) -> None:
    """Raise a ConfigError for a file that an earlier export did not write: one without the ``mark`` in its content."""
    if path.exists() and mark not in read_bytes(path):
        raise ConfigError(f"--out: {path}: exists and is not from an earlier export; choose another name or delete it")


def write_atomically(path: Path, write: Callable[[IO[bytes]], object], *, private: bool = False) -> None:
    """Write a file atomically: a crash leaves the old or the new content. Links are not followed.

    With ``private`` only this user can read it.
    """
    # Unique per process and thread; remove_unfinished reads the process from the name.
    temporary = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_native_id()}.tmp")
    temporary.unlink(missing_ok=True)  # of an earlier process with the same id
    try:
        opener = partial(os.open, mode=0o600 if private else 0o666)
        with open(temporary, "xb", opener=opener) as file:  # "x" follows no link
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(path.parent, os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_unfinished(folder: Path) -> None:
    """Delete temporary files of killed processes in a folder, but none of running ones."""
    for file in folder.glob("*.tmp"):
        owner = re.search(r"\.(\d+)-\d+\.tmp$", file.name)
        if owner is None or int(owner[1]) == os.getpid() or not process_exists(int(owner[1])):
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


class OutputFolder:
    """The folder ``root`` below which all paths of a config are written; the user may allow others."""

    def __init__(self, root: Path, allowed: Sequence[str | Path] = ()) -> None:
        self.root = root
        self._allowed = [Path(folder).resolve() for folder in allowed]
        self._warned: set[str] = set()

    def place(self, name: str) -> Path:
        """Return the folder that a config's ``save_path`` means.

        A relative one is below the root; a leading ``outputs/`` is dropped, since older configs name a place in the
        working directory by it. One that leads out of the root is honoured inside the allowed folders, and elsewhere
        becomes the folder of its last name below the root, with a warning.
        """
        path = PurePosixPath(name)
        parts = path.parts[1:] if path.parts[:1] == ("outputs",) else path.parts
        if not path.is_absolute() and ".." not in parts:
            return self.root.joinpath(*parts)
        resolved = Path(name).resolve()
        if any(resolved.is_relative_to(folder) for folder in self._allowed):
            return resolved
        inside = self.root / path.name if path.name != ".." else self.root
        if name not in self._warned:
            self._warned.add(name)
            logger.log_warning(
                f"save_path '{name}' leads out of the run's folder: {inside} is used instead. To have it there, allow "
                f"that folder on the command line: --allow-write {resolved}"
            )
        return inside
