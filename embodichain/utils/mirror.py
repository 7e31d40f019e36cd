"""Left-right mirror images of observations and actions.

Legend: ... any batch dimensions, D size of a vector, O flattened observation size, A action size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from embodichain.utils.errors import ConfigError


@dataclass(frozen=True)
class Mirror:
    """The mirror image of vectors: component i becomes ``signs[i] * x[permutation[i]]``.

    Attributes:
        permutation: int64 [D].
        signs: float32 [D], 1 or -1.
    """

    permutation: Tensor
    signs: Tensor

    @classmethod
    def of(cls, permutation: Sequence[int], signs: Sequence[float], place: str) -> Mirror:
        """Return the mirror of D components.

        Args:
            permutation: D indices.
            signs: D numbers, 1 or -1.
            place: place for messages.

        Raises:
            ConfigError: one line: the lengths differ, an index or a sign is impossible, or the mirror image of a mirror
                image is not the vector itself.
        """
        size = len(permutation)
        if len(signs) != size:
            raise ConfigError(f"{place}: the permutation has {size} components and signs has {len(signs)}")
        if sorted(permutation) != list(range(size)):
            raise ConfigError(
                f"{place}: the permutation must have each index from 0 to {size - 1} once, got {list(permutation)}"
            )
        if wrong := [sign for sign in signs if sign not in (1, -1)]:
            raise ConfigError(f"{place}: signs must be 1 or -1, got {wrong[0]}")
        for i, j in enumerate(permutation):
            back, sign = permutation[j], signs[i] * signs[j]
            if (back, sign) != (i, 1):
                raise ConfigError(
                    f"{place}: mirrored twice, a vector must be itself again, and component {i} becomes "
                    f"{'-' if sign < 0 else ''}component {back}"
                )
        return cls(torch.tensor(permutation, dtype=torch.int64), torch.tensor(signs, dtype=torch.float32))

    @classmethod
    def joined(cls, parts: Sequence[Mirror]) -> Mirror:
        """Return the mirror of vectors that are ``parts``' vectors one after the other."""
        starts = [0]
        for part in parts:
            starts.append(starts[-1] + part.size)
        permutation = [part.permutation + start for part, start in zip(parts, starts, strict=False)]
        return cls(torch.cat(permutation), torch.cat([part.signs for part in parts]))

    @property
    def size(self) -> int:
        """D."""
        return len(self.signs)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the mirror images of vectors [..., D]."""
        return x.index_select(-1, self.permutation) * self.signs

    def to(self, device: torch.device) -> Mirror:
        """Return the mirror on a device."""
        return Mirror(self.permutation.to(device), self.signs.to(device))


@dataclass(frozen=True)
class MirrorMap:
    """The mirror images of an environment's states and of the actions in them.

    An environment is symmetric under it if the mirrored action leads from the mirrored state to the mirrored next
    state, with the same reward.

    Attributes:
        obs: mirror of the flat observation, [..., O].
        action: mirror of the action, [..., A].
    """

    obs: Mirror
    action: Mirror

    def to(self, device: torch.device) -> MirrorMap:
        """Return the map on a device."""
        return MirrorMap(self.obs.to(device), self.action.to(device))
