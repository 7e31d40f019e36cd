"""Files of tensors in the safetensors format, without the library (https://github.com/huggingface/safetensors).

A file is the length of its header (8 bytes, little-endian), the header (JSON: name -> dtype, shape, where its bytes
begin and end), and the tensors' bytes. Reading it runs nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from embodichain.utils.errors import ConfigError

__all__ = ["read_safetensors", "write_safetensors"]

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_LARGEST_HEADER = 100_000_000  # bytes; the format's own limit


def write_safetensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors by name into a file.

    Raises:
        OSError: it cannot be written.
    """
    header: dict[str, Any] = {}
    chunks: list[bytes] = []
    start = 0
    for name, tensor in tensors.items():
        data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, start + len(data)],
        }
        chunks.append(data)
        start += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of 8
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(chunks))


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in a file by name.

    Raises:
        ConfigError: it cannot be read, or is no such file.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(len(content) - 8, _LARGEST_HEADER):
        raise ConfigError(f"{path}: is no safetensors file: its header is not whole")
    try:
        header = json.loads(content[8 : 8 + length])
        return {
            name: _tensor(name, entry, content, 8 + length) for name, entry in header.items() if name != "__metadata__"
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: is no safetensors file: {error}") from error


def _tensor(name: str, entry: dict[str, Any], content: bytes, first: int) -> torch.Tensor:
    dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
    begin, end = entry["data_offsets"]
    if not 0 <= begin <= end <= len(content) - first or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"'{name}' has {end - begin} bytes for {shape} of {entry['dtype']}, or they are not all there")
    if begin == end:
        return torch.zeros(shape, dtype=dtype)
    return torch.frombuffer(bytearray(content[first + begin : first + end]), dtype=dtype).reshape(shape)
