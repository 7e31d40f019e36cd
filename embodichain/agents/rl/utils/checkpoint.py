"""Checkpoints: written whole or not at all, and loaded without running any code of theirs."""

from __future__ import annotations

import os
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from embodichain.utils import ConfigError

__all__ = ["FORMAT_VERSION", "load_checkpoint", "save_checkpoint"]

FORMAT_VERSION = 1


def save_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint.

    It goes to a temporary file beside it, which then takes its name: a file of that name is always complete.

    Args:
        path: its file; the folder is there.
        content: tensors, numbers, texts and containers of them.
    """
    temporary = path.with_suffix(".tmp")
    try:
        with temporary.open("wb") as file:
            torch.save({"format_version": FORMAT_VERSION, **content}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def load_checkpoint(path: str | Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """Read a checkpoint.

    Args:
        path: its file.
        device: where its tensors go.

    Raises:
        ConfigError: there is no such file, it is damaged, or of another format.
    """
    try:
        content = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such checkpoint") from None
    except UnpicklingError as error:
        # torch's own message recommends to load it unsafely.
        raise ConfigError(f"{path}: damaged, or holds more than tensors and plain data: no checkpoint") from error
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ConfigError(f"{path}: cannot be read as a checkpoint: {reason}") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if version != FORMAT_VERSION:
        raise ConfigError(f"{path}: format version {version}; this version of the program reads {FORMAT_VERSION}")
    return dict(content)
