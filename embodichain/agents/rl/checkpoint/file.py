"""Checkpoint files: written whole or not at all, with a checksum, and loaded without running any code of theirs.

A checkpoint is a zip archive of ``torch.save``, whose comment is the SHA-256 of all bytes before it.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any

import torch

from embodichain.utils import ConfigError
from embodichain.utils.files import read_bytes, write_atomically

FORMAT_VERSION = 2

_MARK = b"sha256:"
_COMMENT_SIZE = len(_MARK) + 64


class DamagedCheckpointError(ConfigError):
    """A checkpoint cannot be read; another one may be whole."""


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint; see :func:`write_atomically`."""
    write_packed(path, *pack(content))


def pack(content: dict[str, Any]) -> tuple[memoryview, str]:
    """Return the archive of a checkpoint, and its SHA-256."""
    buffer = io.BytesIO()
    torch.save({"format_version": FORMAT_VERSION, **content}, buffer)
    archive = buffer.getbuffer()[:-2]  # without the length of the comment
    return archive, hashlib.sha256(archive).hexdigest()


def write_packed(path: Path, archive: memoryview, digest: str) -> None:
    """Write what :func:`pack` returned; see :func:`write_atomically`."""
    comment = _MARK + digest.encode()

    def write(file: IO[bytes]) -> None:
        file.write(archive)
        file.write(len(comment).to_bytes(2, "little") + comment)

    write_atomically(path, write)


def load_checkpoint(path: str | Path, device: torch.device | str = "cpu", sha256: str | None = None) -> dict[str, Any]:
    """Read a checkpoint.

    Args:
        sha256: of its archive; None: any.

    Raises:
        DamagedCheckpointError: there is no such file, it is damaged, or its archive is another.
        ConfigError: it is of another format.
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
