"""A plain transformer encoder. Shapes: B batch, S tokens, D width."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

__all__ = ["Transformer"]


class _Block(nn.Module):
    """Self-attention and an MLP of four times the width, each on normalised input and added to it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)  # [B, heads, 3, S, D / heads]
        query, key, value = qkv.unbind(2)
        attended = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        x = x + self.out(attended)
        out: torch.Tensor = x + self.mlp(self.norm2(x))
        return out


class Transformer(nn.Module):
    """Blocks of self-attention over all tokens, [B, S, D] -> [B, S, D].

    Args:
        width: D, a multiple of ``heads``.
        depth: how many blocks.
        heads: of the attention.
        gradient_checkpointing: compute each block again for its gradient instead of keeping what is inside it.
    """

    def __init__(self, width: int, depth: int, heads: int, gradient_checkpointing: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.gradient_checkpointing = gradient_checkpointing

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the normalised output of the last block."""
        for block in self.blocks:
            if self.gradient_checkpointing and torch.is_grad_enabled():
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        out: torch.Tensor = self.norm(x)
        return out
