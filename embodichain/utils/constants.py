"""Constants on a device: to send one there makes the host wait for all that the device was told before."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


@lru_cache(maxsize=4096)
def constant(values: tuple[Any, ...], device: torch.device, dtype: torch.dtype = torch.int64) -> Tensor:
    """Return (nested) tuples of numbers as a tensor, which is sent once; do not write into it."""
    return torch.tensor(values, dtype=dtype, device=device)
