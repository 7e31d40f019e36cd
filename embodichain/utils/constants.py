"""Cached constants on a device: copying one there would wait for all queued work of the device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


@lru_cache(maxsize=4096)
def constant(values: tuple[Any, ...], device: torch.device, dtype: torch.dtype = torch.int64) -> Tensor:
    """Return (nested) tuples of numbers as a cached tensor; do not write into it."""
    return torch.tensor(values, dtype=dtype, device=device)
