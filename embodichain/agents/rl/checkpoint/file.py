"""Checkpoint files: written whole or not at all, with a checksum, and loaded without running any code of theirs.

A checkpoint is a zip archive of ``torch.save``; its comment is the SHA-256 of all bytes before it.
"""

import hashlib
import io
import os
from pathlib import Path
from typing import IO, Any

import torch

from embodichain.utils import ConfigError, read_bytes, write_atomically

FORMAT_VERSION = 2

_MARK = b"sha256:"
_COMMENT_SIZE = len(_MARK) + 64


class DamagedCheckpointError(ConfigError):
    """A checkpoint cannot be read; another one may be whole."""


def save_checkpoint(path: Path, content: dict[str, Any]) -> str:
    """Write a checkpoint, see :func:`write_atomically`, and return the SHA-256 of its archive.

    The archive is never whole in the memory.
    """
    digest = ""

    def write(file: IO[bytes]) -> None:
        nonlocal digest
        try:
            torch.save({"format_version": FORMAT_VERSION, **content}, file)
        except RuntimeError as error:  # torch's, as it closes the archive after a failed write
            raise (error.__context__ if isinstance(error.__context__, OSError) else error) from None
        file.seek(-2, os.SEEK_END)
        file.truncate()  # the length of the comment, which is none yet
        file.flush()
        with open(file.name, "rb") as archive:
            digest = hashlib.file_digest(archive, "sha256").hexdigest()
        comment = _MARK + digest.encode()
        file.write(len(comment).to_bytes(2, "little") + comment)

    write_atomically(path, write)
    return digest


def load_checkpoint(path: str | Path, device: torch.device | str = "cpu", sha256: str | None = None) -> dict[str, Any]:
    """Read a checkpoint.

    Args:
        sha256: hash of its archive; None: any.

    Raises:
        DamagedCheckpointError: there is no such file, it is damaged, or its archive is another.
        ConfigError: the file has another format.
    """
    try:
        data = read_bytes(path)
    except OSError as error:
        raise DamagedCheckpointError(f"{path}: cannot be read as a checkpoint: {error.strerror}") from error
    digest = hashlib.sha256(memoryview(data)[: -_COMMENT_SIZE - 2]).hexdigest()
    if data[-_COMMENT_SIZE:] != _MARK + digest.encode() or sha256 not in (None, digest):
        raise DamagedCheckpointError(f"{path}: damaged, or not the expected checkpoint: it does not fit its checksum")
    try:
        content = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
        version = content["format_version"]
    except Exception as error:  # an untrusted file may raise anything; torch's message recommends to load it unsafely
        raise DamagedCheckpointError(f"{path}: damaged, or holds more than tensors and plain data") from error
    if version != FORMAT_VERSION:
        raise ConfigError(f"{path}: format version {version}; this version of the program reads {FORMAT_VERSION} alone")
    return dict(content)
