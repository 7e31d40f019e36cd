"""Files of tensors in the safetensors format (https://github.com/huggingface/safetensors); reading one runs no code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors_torch

from embodichain.utils.errors import ConfigError
from embodichain.utils.files import read_bytes, write_atomically


def write_safetensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors by name into a file, atomically.

    Raises:
        OSError: the file cannot be written.
    """
    # Copies: tensors that share their memory are refused.
    own = {name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}
    write_atomically(path, lambda file: file.write(safetensors_torch.save(own)))


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in a file by name.

    Raises:
        ConfigError: the file cannot be read or is invalid.
    """
    try:
        return safetensors_torch.load(read_bytes(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (SafetensorError, KeyError, RuntimeError, ValueError) as error:
        reason = str(error).removeprefix("Error while deserializing: ")
        raise ConfigError(f"{path}: is no safetensors file: {reason}") from error
