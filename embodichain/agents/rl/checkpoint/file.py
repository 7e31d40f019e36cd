"""Checkpoint files: written whole or not at all, proof against damage, and loaded without running any code of theirs.

A checkpoint is what ``torch.save`` writes, a zip archive, with the SHA-256 of all that stands before it as its comment.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any

import torch

from embodichain.utils import ConfigError
from embodichain.utils.files import read_bytes

__all__ = [
    "FORMAT_VERSION",
    "DamagedCheckpointError",
    "load_checkpoint",
    "remove_unfinished",
    "save_checkpoint",
    "without_links",
    "write_atomically",
    "write_json",
]

FORMAT_VERSION = 2

_MARK = b"sha256:"
_COMMENT_SIZE = len(_MARK) + 64


class DamagedCheckpointError(ConfigError):
    """A checkpoint cannot be read; another one may be whole."""


def write_atomically(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that under its name there is always a complete one, even if the machine stops.

    It goes to a temporary file beside it, which takes the name when it is on the disk. Neither follows a link.

    Args:
        path: its name; the folder is there.
        write: writes the content.
    """
    # By process and thread: each has a file of its own, and remove_unfinished can tell whose it is.
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


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint; see :func:`write_atomically`.

    Args:
        path: its file; the folder is there.
        content: tensors, numbers, texts and containers of them.
    """
    buffer = io.BytesIO()
    torch.save({"format_version": FORMAT_VERSION, **content}, buffer)
    archive = buffer.getbuffer()[:-2]  # what follows is the length of the comment: none
    comment = _MARK + hashlib.sha256(archive).hexdigest().encode()

    def write(file: IO[bytes]) -> None:
        file.write(archive)
        file.write(len(comment).to_bytes(2, "little") + comment)

    write_atomically(path, write)


def load_checkpoint(path: str | Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint.

    Args:
        path: its file.
        device: where its tensors go.

    Raises:
        DamagedCheckpointError: there is no such file, or it is damaged.
        ConfigError: it is of another format.
    """
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        raise DamagedCheckpointError(f"{path}: no such checkpoint") from None
    except OSError as error:
        raise DamagedCheckpointError(f"{path}: cannot be read as a checkpoint: {error.strerror}") from error
    has_checksum = _verify(path, data)
    try:
        content = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
    except UnpicklingError as error:
        # torch's own message recommends to load it unsafely.
        raise DamagedCheckpointError(f"{path}: damaged, or holds more than tensors and plain data") from error
    except Exception as error:  # a file of somebody else's may raise anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DamagedCheckpointError(f"{path}: damaged, cannot be read as a checkpoint: {reason}") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != FORMAT_VERSION:
        raise ConfigError(
            f"{path}: format version {version}; this version of the program reads {FORMAT_VERSION} and no other"
        )
    if not has_checksum:
        raise DamagedCheckpointError(f"{path}: damaged: its checksum is missing")
    return dict(content)


def _verify(path: str | Path, data: bytes) -> bool:
    """Return whether there is a checksum.

    Raises:
        DamagedCheckpointError: it is not that of the file.
    """
    comment = data[-_COMMENT_SIZE:]
    if not comment.startswith(_MARK):
        return False
    digest = hashlib.sha256(memoryview(data)[: -_COMMENT_SIZE - 2]).hexdigest().encode()
    if comment != _MARK + digest:
        raise DamagedCheckpointError(f"{path}: damaged: the file does not fit its checksum")
    return True
