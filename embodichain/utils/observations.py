"""Observations between the environments' nested TensorDicts and the learner's flat tensors.

Legend: N envs, O flattened observation size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorCollection, TensorDict

__all__ = ["dict_to_tensordict", "flatten_dict_observation"]

_IMAGE_DIMS = 4  # N, height, width, channels


def dict_to_tensordict(obs: Mapping[str, Any] | TensorDict, device: torch.device | str) -> TensorDict:
    """Turn nested dictionaries of arrays into a TensorDict.

    Args:
        obs: tensors or numpy arrays of shape [N, ...], in dictionaries of any depth; or already a TensorDict.
        device: where the tensors go.

    Returns:
        A TensorDict of batch size [N] with the same keys; dtypes stay.

    Raises:
        ValueError: there is no array in ``obs``.
        RuntimeError: the arrays do not agree on N.
    """
    if isinstance(obs, TensorDict):
        return obs.to(device)
    tensors = _to_tensors(obs, torch.device(device))
    return TensorDict(tensors, batch_size=[_num_rows(tensors)], device=device)


def flatten_dict_observation(td: TensorDict) -> torch.Tensor:
    """Join an observation's leaves into one row per environment.

    Args:
        td: nested TensorDict of batch size [N]; leaves [N, ...] of any numeric dtype.

    Returns:
        float32 [N, O]: the leaves in sorted key order, level by level. With a single float32 leaf it is a view of it.
    """
    leaves: list[torch.Tensor] = []
    _collect_leaves(td, td.batch_size[0], leaves)
    flat = leaves[0] if len(leaves) == 1 else torch.cat(leaves, dim=-1)
    return flat.to(torch.float32)


def _collect_leaves(td: TensorCollection, num_rows: int, leaves: list[torch.Tensor]) -> None:
    for _, value in sorted(td.items()):  # keys are unique: values are never compared
        if isinstance(value, torch.Tensor):
            if value.dim() < _IMAGE_DIMS:
                leaves.append(value.reshape(num_rows, -1))
        else:
            _collect_leaves(value, num_rows, leaves)


def _to_tensors(obs: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    return {
        key: _to_tensors(value, device) if isinstance(value, Mapping) else torch.as_tensor(value, device=device)
        for key, value in obs.items()
    }


def _num_rows(tensors: Mapping[str, Any]) -> int:
    values = list(tensors.values())
    while values:
        value = values.pop()
        if isinstance(value, torch.Tensor):
            return value.shape[0]
        values.extend(value.values())
    raise ValueError("the observation has no array: cannot tell the number of environments")
