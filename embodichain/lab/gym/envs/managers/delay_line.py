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


def frames_for(frames: Tensor, value: Tensor, length: int) -> Tensor:
    """Return frames [N, K, ...] as they are, or K = ``length`` zeros for values [N, ...] where there are none yet."""
    return frames if frames.shape[1] else value.new_zeros(len(value), length, *value.shape[1:])


def push(frames: Tensor, value: Tensor) -> Tensor:
    """Return frames [N, K, ...] with a value [N, ...] as the newest, without the oldest."""
    return torch.cat((frames[:, 1:], value[:, None]), dim=1)


def read(frames: Tensor, lag: Tensor) -> Tensor:
    """Return the frames from ``lag`` steps ago, for lags [N] or [N, L]: [N, ...] or [N, L, ...]; 0 is the newest.

    A lag up to the number of values before in the episode reads none of an older one.
    """
    rows = torch.arange(len(frames), device=frames.device).view(-1, *[1] * (lag.dim() - 1))
    return frames[rows, frames.shape[1] - 1 - lag]
