"""The tensor functions of SmolVLA.

Legend: B batch, S tokens, R tokens attended to, G heads for keys and values, C their size.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

_WAVELENGTH = 10_000.0  # longest, of rotary position embeddings


def rest_of_layer(layer: Any, hidden: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """Return the output of a Llama layer for its input and its attention's output."""
    hidden = hidden + layer.self_attn.o_proj(seen)
    result: torch.Tensor = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    return result


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return attention of queries [B, S, heads, C] to keys and values [B, R, G, C], [B, S, heads C]; mask [B, S, R]."""
    query, key, value = (x.transpose(1, 2) for x in (query, key.to(query.dtype), value.to(query.dtype)))
    seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask.unsqueeze(1), enable_gqa=True)
    return seen.transpose(1, 2).flatten(2)


def rotated(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return heads [B, S, heads, C] rotated by positions [B or 1, S] (Su et al., "RoFormer", 2021)."""
    half = x.shape[-1] // 2
    speed = _WAVELENGTH ** -(torch.arange(half, device=x.device) / half)
    angle = (places.unsqueeze(-1) * speed).unsqueeze(2)
    sine, cosine = angle.sin(), angle.cos()
    first, second = x.float().split(half, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1).to(x.dtype)


def waves(time: torch.Tensor, width: int, periods: tuple[float, float]) -> torch.Tensor:
    """Return sines and cosines of times [B], [B, width], computed in float64 as the shortest period is small."""
    shortest, longest = periods
    share = torch.linspace(0.0, 1.0, width // 2, dtype=torch.float64, device=time.device)
    angle = time.double().unsqueeze(1) * (2 * math.pi / (shortest * (longest / shortest) ** share))
    return torch.cat((angle.sin(), angle.cos()), dim=1).to(time.dtype)


def fitted_pixels(images: torch.Tensor, size: int) -> torch.Tensor:
    """Return uint8 images [B, height, width, 3] as [B, 3, size, size] in [-1, 1], padded at the left and top."""
    pixels = images.permute(0, 3, 1, 2).float() / 255
    height, width = pixels.shape[-2:]
    ratio = max(width / size, height / size)
    fitted = [int(height / ratio), int(width / ratio)]
    if fitted != [height, width]:
        pixels = F.interpolate(pixels, fitted, mode="bilinear")
    return F.pad(pixels, (size - fitted[1], 0, size - fitted[0], 0)) * 2 - 1
