"""Discrete actions. Legend: ... any batch dimensions, A components of an action, n_i possibilities of component i."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

ACTION_MASK = "action_mask"
"""Entry of the observation that says which possibilities of discrete actions there are, [n_1 + ... + n_A], 0 or 1."""


class Choices(spaces.Box[np.float32]):
    """The space of actions that choose: component i is the index of one of n_i possibilities, a float32 number.

    Rollouts, datasets and exported policies hold the indices as they hold the numbers of other actions. Gymnasium's
    ``Discrete``, ``MultiDiscrete`` and ``MultiBinary`` are mapped to it.

    Attributes:
        sizes: n_1, ..., n_A.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(int(size) for size in sizes)
        super().__init__(0, np.array(self.sizes, dtype=np.float32) - 1, dtype=np.float32)

    def __repr__(self) -> str:
        return f"Choices({', '.join(map(str, self.sizes))})"


def sizes_of(space: Any) -> tuple[int, ...]:
    """Return the numbers of possibilities of an action space's components; none of other spaces than ``Choices``."""
    return space.sizes if isinstance(space, Choices) else ()
