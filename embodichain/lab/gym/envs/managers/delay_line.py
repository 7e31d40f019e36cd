"""Delay lines: the latest values of each environment, and reading them late.

A term keeps the frames as one tensor of its own, so that checkpoints and partial resets find them.

Shapes: N environments, n in ``env_ids``, K frames, oldest first; ... of one value.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import AfterValidator, NonNegativeInt
from pydantic_core import PydanticCustomError
from torch import Tensor

from embodichain.utils.random import CounterRandom


def _check_delay(delay: tuple[int, int]) -> tuple[int, int]:
    if delay[0] > delay[1]:
        problem = "must be [lowest, highest] in control steps, with the lowest not above the highest"
        raise PydanticCustomError("range", "{problem}", {"problem": problem})
    return delay


Delay = Annotated[tuple[NonNegativeInt, NonNegativeInt], AfterValidator(_check_delay)]
"""``[lowest, highest]`` number of control steps."""


def draw_delay(random: CounterRandom, env_ids: Tensor, delay: Delay) -> Tensor:
    """Return whole numbers of control steps from lowest to highest, equally likely, [n] int64."""
    lowest, highest = delay
    return (lowest + random.uniform(env_ids, 0.0, float(highest - lowest + 1), 1)[:, 0].floor()).long()


def push(frames: Tensor, value: Tensor) -> Tensor:
    """Return frames [N, K, ...] with a value [N, ...] as the newest, without the oldest."""
    return torch.cat((frames[:, 1:], value[:, None]), dim=1)


def push_or_fill(frames: Tensor, value: Tensor, begins: Tensor, length: int) -> Tensor:
    """Return :func:`push`'s frames, [N, K, ...]; where ``begins`` [N] bool, the value is all of them.

    Args:
        frames: [N, K, ...], or [N, 0] before the first value, when every environment begins.
        length: K.
    """
    filled = value[:, None].expand(-1, length, *value.shape[1:])
    if frames.shape[1] == 0:
        return filled.clone()
    return torch.where(begins.view(-1, *[1] * value.dim()), filled, push(frames, value))


def read(frames: Tensor, lag: Tensor) -> Tensor:
    """Return the frame from ``lag`` [N] steps ago, [N, ...], of frames [N, K, ...]; the newest is 0 steps old."""
    rows = torch.arange(len(frames), device=frames.device)
    return frames[rows, frames.shape[1] - 1 - lag]
