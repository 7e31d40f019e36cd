"""Observations between the environments' nested TensorDicts and the learner's flat tensors.

An entry of an observation is a leaf of the nested TensorDict; its name is the path to it, ``"sensor/cam/color"``.
Images ([N, H, W, C]) are not part of the flat tensor. Policies read them by name.

Legend: N envs, O flattened observation size.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorCollection, TensorDict
from torch import Tensor

from embodichain.utils.errors import ConfigError, unknown_name

IMAGE_DIMS = 3
"""Dimensions of an image in an observation: height, width, channels."""


def nested_observation(entries: Mapping[str, torch.Tensor], device: torch.device) -> TensorDict:
    """Return entries [N, ...] by slash-separated name as a nested TensorDict of batch size [N]."""
    leaves = {tuple(name.split("/")): value for name, value in entries.items()}
    return TensorDict(leaves, batch_size=[len(next(iter(entries.values())))], device=device)


def dict_to_tensordict(obs: Mapping[str, Any] | TensorDict, device: torch.device | str) -> TensorDict:
    """Turn nested dictionaries of arrays [N, ...] into a TensorDict of batch size [N] with the same keys and dtypes."""
    if isinstance(obs, TensorDict):
        return obs.to(device)
    td = TensorDict(dict(obs), batch_size=[], device=device)
    leaves = td.values(include_nested=True, leaves_only=True)
    td.batch_size = torch.Size([len(next(iter(leaves)))])
    return td


def flatten_dict_observation(td: TensorDict) -> torch.Tensor:
    """Join an observation's entries [N, ...], without the images, into one row per environment.

    Returns:
        float32 [N, O]: the entries in sorted key order, level by level. With a single float32 one it is a view of it.
    """
    return _flat(td).to(torch.float32)


def flat_input(td: TensorDict) -> torch.Tensor:
    """Return the flat observation as a policy's input: infinite numbers become NaN.

    A normaliser clips an infinite input to a large one, and a saturating network hides it: the policy would learn from
    it without a warning. NaN reaches the loss, and the step is skipped.

    Returns:
        float32 [N, O], or float64 if an entry is; never a view of the observation.
    """
    flat = _flat(td)
    flat = flat if flat.dtype == torch.float64 else flat.to(torch.float32)
    return torch.nan_to_num(flat, nan=torch.nan, posinf=torch.nan, neginf=torch.nan)


def select_entries(td: TensorDict, names: Sequence[str]) -> TensorDict:
    """Return some of an observation's entries [N, ...], with their names as keys; nothing is copied."""
    entries: dict[str, torch.Tensor] = {}
    for name in names:
        value = td.get(tuple(name.split("/")), None)
        if not isinstance(value, torch.Tensor):
            known = ["/".join(key) if isinstance(key, tuple) else key for key in td.keys(True, True)]
            raise ConfigError(unknown_name("entry of the observation", name, known))
        entries[name] = value
    return TensorDict(entries, batch_size=td.batch_size, device=td.device)


def entry_spaces(space: spaces.Dict) -> dict[str, spaces.Box]:
    """Return the spaces of a structured observation space's entries by name, in the order of the flat observation."""
    entries: dict[str, spaces.Box] = {}
    for name, inner in sorted(space.spaces.items()):
        if isinstance(inner, spaces.Dict):
            entries |= {f"{name}/{key}": value for key, value in entry_spaces(inner).items()}
        else:
            assert isinstance(inner, spaces.Box)  # environments make nothing else
            entries[name] = inner
    return entries


def zero_entries(space: spaces.Dict, keys: Sequence[str], num_rows: int) -> TensorDict | None:
    """Return zeros [M] for the entries of a structured observation space that ``keys`` name; None if there are none."""
    known = entry_spaces(space)
    zeros = {key: np.zeros((num_rows, *known[key].shape), known[key].dtype) for key in keys if key in known}
    if not zeros:
        return None
    return TensorDict({key: torch.from_numpy(array) for key, array in zeros.items()}, batch_size=[num_rows])


def entry_columns(space: spaces.Dict) -> dict[str, slice]:
    """Return the columns of each entry in the flat observation, by name, without images."""
    columns: dict[str, slice] = {}
    start = 0
    for name, entry in entry_spaces(space).items():
        if len(entry.shape) < IMAGE_DIMS:
            stop = start + int(np.prod(entry.shape))
            columns[name] = slice(start, stop)
            start = stop
    return columns


def column_names(space: spaces.Dict) -> list[str]:
    """Return a name for each of the O columns of the flat observation: its entry's, and its number in the entry."""
    parts = entry_columns(space).items()
    return [f"{name}.{i}" for name, part in parts for i in range(part.stop - part.start)]


def _flat(td: TensorDict) -> torch.Tensor:
    """Return an observation's entries without the images in one row per environment, of their common dtype."""
    leaves: list[torch.Tensor] = []
    _collect_leaves(td, td.batch_size[0], leaves)
    if not leaves:
        return torch.zeros(td.batch_size[0], 0, device=td.device)
    return leaves[0] if len(leaves) == 1 else torch.cat(leaves, dim=-1)


def _collect_leaves(td: TensorCollection, num_rows: int, leaves: list[torch.Tensor]) -> None:
    for _, value in sorted(td.items()):  # keys are unique: values are never compared
        if isinstance(value, torch.Tensor):
            if value.dim() - 1 < IMAGE_DIMS:
                leaves.append(value.reshape(num_rows, -1))
        else:
            _collect_leaves(value, num_rows, leaves)


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
        """Return the mirror of D components by D indices and D signs, 1 or -1."""
        mirror = cls(torch.tensor(permutation, dtype=torch.int64), torch.tensor(signs, dtype=torch.float32))
        size = len(permutation)
        numbers = torch.arange(1.0, size + 1)
        if len(signs) != size or not set(permutation) <= set(range(size)) or not mirror(mirror(numbers)).equal(numbers):
            raise ConfigError(
                f"{place}: must have each index from 0 to {size - 1} once, and as many signs (1 or -1), so that a "
                f"vector mirrored twice is itself again, got permutation {list(permutation)} and signs {list(signs)}"
            )
        return mirror

    @classmethod
    def joined(cls, parts: Sequence[Mirror]) -> Mirror:
        """Return the mirror of vectors that are ``parts``' vectors one after the other."""
        starts = itertools.accumulate((part.size for part in parts), initial=0)
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
    """The mirror images of an environment's states, as flat observations [..., O], and of the actions [..., A] in them.

    An environment is symmetric under it if the mirrored action leads from the mirrored state to the mirrored next
    state, with the same reward.
    """

    obs: Mirror
    action: Mirror

    def to(self, device: torch.device) -> MirrorMap:
        """Return the map on a device."""
        return MirrorMap(self.obs.to(device), self.action.to(device))
