"""Random changes of demonstrations. Shapes: B batch, L sequence length."""

from __future__ import annotations

import torch
from tensordict import TensorDict


def shift_images(entries: TensorDict, pixels: int) -> TensorDict:
    """Return entries of an observation with each image moved by -``pixels`` to ``pixels`` along both axes, at random.

    Where it is moved away from a border, the border's pixels are repeated. As in Kostrikov, Yarats and Fergus, "Image
    Augmentation Is All You Need", 2020. The frames of a sequence are moved alike, and each camera by itself.

    Args:
        entries: [B] or [B, L]; its entries [..., height, width, channels] are the images.
    """
    dims = entries.batch_dims
    moved = entries.apply(lambda x: _shifted(x, pixels, dims) if x.dim() == dims + 3 else x)
    assert moved is not None  # only with a filter of empty entries
    return moved


def _shifted(images: torch.Tensor, pixels: int, dims: int) -> torch.Tensor:
    """Return images [B, height, width, C] or [B, L, height, width, C] moved at random, those of a row alike."""
    height, width, _ = images.shape[-3:]
    batch, device = len(images), images.device
    rows, columns = (
        (torch.randint(-pixels, pixels + 1, (batch, 1), device=device) + torch.arange(size, device=device)).clamp(
            0, size - 1
        )
        for size in (height, width)
    )
    number = torch.arange(batch, device=device).view(batch, 1, 1)
    place = (number, rows.unsqueeze(2), columns.unsqueeze(1))
    # Indices first: [B, height, width, L, C] of sequences.
    return images[place] if dims == 1 else images.movedim(1, -2)[place].movedim(-2, 1)
