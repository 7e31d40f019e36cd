"""In which precision updates compute."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal

import torch

__all__ = ["Precision", "update_precision"]

Precision = Literal["float32", "bf16"]


def update_precision(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return what an update is to be entered in.

    With ``"bf16"`` the products of matrices and the convolutions take and give bfloat16, forwards and backwards
    (``torch.autocast``). Parameters, optimiser, losses and, in the built-in policies, log-probabilities and values are
    float32 as ever.
    """
    # Parameters change from step to step: a copy of them in bfloat16 must not be kept for the next one.
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)
