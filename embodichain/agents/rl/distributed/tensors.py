"""Tensors as the processes of a training send them: data in bytes, gradients in buckets, checksums, moments.

Legend: n samples, O their size, W parts.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

BUCKET_BYTES = 4 * 2**20  # of a bucket of gradients, about


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
    """Divide gradients into buckets of about ``BUCKET_BYTES`` each, in their order; a missing one is zero."""
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
    """Return a checksum of a tensor's bits: int64 [], on the CPU."""
    data = x.detach().contiguous().reshape(-1).view(torch.uint8)
    words = nn.functional.pad(data, (0, -len(data) % 8)).view(torch.int64)
    # Weights by place, so that swapped values are detected.
    places = torch.arange(1, 2 * len(words), 2, device=x.device)
    return (words * places).sum().cpu()


def moments(x: torch.Tensor) -> torch.Tensor:
    """Return the number of samples [n, O], their mean, and their sum of squared deviations from it: a row [1 + 2 O]."""
    mean = x.mean(0) if len(x) else x.new_zeros(x.shape[1])
    return torch.cat((x.new_full((1,), x.shape[0]), mean, (x - mean).square().sum(0)))


def merged_moments(parts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the number, mean and sum of squared deviations of all samples together: [], [O], [O].

    Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979. Parts
    are taken in their order, so that the same parts give the same bits. Parts may be empty.

    Args:
        parts: rows of :func:`moments`, float64 [W, 1 + 2 O].
    """
    size = (parts.shape[1] - 1) // 2
    count, mean, m2 = parts[0].split((1, size, size))
    for part in parts[1:]:
        n, part_mean, part_m2 = part.split((1, size, size))
        total = (count + n).clamp(min=1)
        delta = torch.where(n > 0, part_mean - mean, 0.0)
        m2 = m2 + torch.where(n > 0, part_m2, 0.0) + delta.square() * (count * n / total)
        mean = mean + delta * (n / total)
        count = count + n
    return count.squeeze(0), mean, m2
