"""Tensors as the processes of a training send them: data in bytes, gradients in buckets, checksums."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

__all__ = ["GradientBucket", "checksum", "gradient_buckets", "packed", "unpacked"]

BUCKET_BYTES = 4 * 2**20  # gradients are sent in pieces of about this size


@dataclass(frozen=True)
class GradientBucket:
    """Gradients of one type and device that are sent by one operation."""

    gradients: list[torch.Tensor]

    def flatten(self) -> torch.Tensor:
        """Return all gradients, one after the other."""
        return torch.cat([gradient.reshape(-1) for gradient in self.gradients])

    def write(self, flat: torch.Tensor) -> None:
        """Write what :meth:`flatten` returned back into the gradients."""
        pieces = flat.split([gradient.numel() for gradient in self.gradients])
        views = [piece.view_as(gradient) for piece, gradient in zip(pieces, self.gradients, strict=True)]
        torch._foreach_copy_(self.gradients, views)


def gradient_buckets(parameters: Iterable[nn.Parameter]) -> Iterator[GradientBucket]:
    """Divide gradients into buckets of about ``BUCKET_BYTES`` each, in their order; one that is not there is zero."""
    bucket: list[torch.Tensor] = []
    size = 0
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
        kind = (p.dtype, p.device)
        if bucket and (size >= BUCKET_BYTES or (bucket[0].dtype, bucket[0].device) != kind):
            yield GradientBucket(bucket)
            bucket, size = [], 0
        bucket.append(p.grad)
        size += p.numel() * p.element_size()
    if bucket:
        yield GradientBucket(bucket)


def packed(data: object) -> torch.Tensor:
    """Return tensors, numbers, texts and containers of them as bytes: uint8 [n]."""
    buffer = io.BytesIO()
    torch.save(data, buffer)
    return torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)


def unpacked(content: torch.Tensor) -> Any:
    """Return what :func:`packed` was given."""
    return torch.load(io.BytesIO(content.numpy().tobytes()), weights_only=True)


def checksum(x: torch.Tensor) -> torch.Tensor:
    """Return a number that follows from a tensor's bits: int64 [], on the CPU."""
    data = x.detach().contiguous().reshape(-1).view(torch.uint8)
    words = nn.functional.pad(data, (0, -len(data) % 8)).view(torch.int64)
    # Weights by place, so that two values that have changed places are seen.
    places = torch.arange(1, 2 * len(words), 2, device=x.device)
    return (words * places).sum().cpu()
