"""Checkpoint files: written whole or not at all, with a checksum, and loaded without running any code of theirs.

A checkpoint is a zip archive of ``torch.save``; its comment is the SHA-256 of all bytes before it.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any, cast

import torch

from embodichain.utils import ConfigError
from embodichain.utils.files import read_bytes, write_atomically

FORMAT_VERSION = 2

_MARK = b"sha256:"
_COMMENT_SIZE = len(_MARK) + 64


class DamagedCheckpointError(ConfigError):
    """A checkpoint cannot be read; another one may be whole."""


class _HashedFile:
    """A file to write an archive into, without its last two bytes, the length of its comment.

    Large models are written as they are: their archive is never whole in the memory.

    Attributes:
        error: error of the first failed write, which torch's archive writer replaces by one of its own.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._sha256 = hashlib.sha256()
        self._last = b""  # two bytes that may be the last
        self.error: OSError | None = None

    def write(self, data: bytes | memoryview) -> int:
        """Write and hash all but the last two bytes."""
        size = len(data)
        if size < 2:
            data = self._last + bytes(data)
        else:
            self._put(self._last)
        self._put(data[:-2])
        self._last = bytes(data[-2:])
        return size

    def flush(self) -> None:
        """Do nothing: torch.save calls it."""

    def digest(self) -> str:
        """Return the SHA-256 of the written bytes."""
        return self._sha256.hexdigest()

    def _put(self, data: bytes | memoryview) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise
        self._sha256.update(data)


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint; see :func:`write_atomically`."""

    def write(file: IO[bytes]) -> None:
        hashed = _HashedFile(file)
        try:
            torch.save({"format_version": FORMAT_VERSION, **content}, cast("IO[bytes]", hashed))  # it only writes
        except RuntimeError as error:
            raise hashed.error or error from None
        _write_comment(file, hashed.digest())

    write_atomically(path, write)


def pack(content: dict[str, Any]) -> tuple[memoryview, str]:
    """Return the archive of a checkpoint, and its SHA-256."""
    buffer = io.BytesIO()
    torch.save({"format_version": FORMAT_VERSION, **content}, buffer)
    archive = buffer.getbuffer()[:-2]  # without the length of the comment
    return archive, hashlib.sha256(archive).hexdigest()


def write_packed(path: Path, archive: memoryview, digest: str) -> None:
    """Write the result of :func:`pack`; see :func:`write_atomically`."""

    def write(file: IO[bytes]) -> None:
        file.write(archive)
        _write_comment(file, digest)

    write_atomically(path, write)


def _write_comment(file: IO[bytes], digest: str) -> None:
    """Write the last part of an archive: the length of its comment, and the comment."""
    comment = _MARK + digest.encode()
    file.write(len(comment).to_bytes(2, "little") + comment)


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
    except FileNotFoundError:
        raise DamagedCheckpointError(f"{path}: no such checkpoint") from None
    except OSError as error:
        raise DamagedCheckpointError(f"{path}: cannot be read as a checkpoint: {error.strerror}") from error
    digest = _verified_digest(path, data)
    if sha256 is not None and digest != sha256:
        raise DamagedCheckpointError(f"{path}: damaged, or another file than its checkpoint names")
    try:
        content = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
    except UnpicklingError as error:
        # torch's own message recommends to load it unsafely.
        raise DamagedCheckpointError(f"{path}: damaged, or holds more than tensors and plain data") from error
    except Exception as error:  # an untrusted file may raise anything
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DamagedCheckpointError(f"{path}: damaged, cannot be read as a checkpoint: {reason}") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != FORMAT_VERSION:
        raise ConfigError(
            f"{path}: format version {version}; this version of the program reads {FORMAT_VERSION} and no other"
        )
    if digest is None:
        raise DamagedCheckpointError(f"{path}: damaged: its checksum is missing")
    return dict(content)


def _verified_digest(path: str | Path, data: bytes) -> str | None:
    """Return the checksum, if there is one; a DamagedCheckpointError if it is not that of the file."""
    comment = data[-_COMMENT_SIZE:]
    if not comment.startswith(_MARK):
        return None
    digest = hashlib.sha256(memoryview(data)[: -_COMMENT_SIZE - 2]).hexdigest()
    if comment != _MARK + digest.encode():
        raise DamagedCheckpointError(f"{path}: damaged: the file does not fit its checksum")
    return digest
