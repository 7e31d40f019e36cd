"""Spaces of observations, read from an observation. Shapes: N environments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from tensordict import TensorCollection
from torch import Tensor


def space_of(obs: TensorCollection) -> gym.spaces.Dict:
    """Return the nested space of one environment's observation."""
    spaces: dict[str, gym.Space[Any]] = {}
    for name, value in obs.items():
        spaces[str(name)] = box_of(value) if isinstance(value, Tensor) else space_of(value)
    return gym.spaces.Dict(spaces)


def box_of(value: Tensor) -> gym.spaces.Box:
    """Return the space of one environment's row of a tensor [N, ...], with the bounds of its type, such as 0 to 255."""
    array = value[0].cpu().numpy()
    dtype: Any = array.dtype.type
    low, high = (-np.inf, np.inf)
    if array.dtype == np.bool_:
        low, high = 0, 1
    elif np.issubdtype(dtype, np.integer):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return gym.spaces.Box(low, high, shape=array.shape, dtype=dtype)
