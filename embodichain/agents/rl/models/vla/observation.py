"""What vision-language-action models are given. Shapes: B batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict

from embodichain.utils import ConfigError
from embodichain.utils.errors import unknown_name

__all__ = ["IMAGE", "INSTRUCTION", "STATE", "vla_observation"]

IMAGE, STATE, INSTRUCTION = "image/", "state", "instruction"
"""Names of the entries; an image's goes on with that of its camera."""


def vla_observation(
    obs: Mapping[str, Any] | TensorDict, keys: Sequence[str], device: torch.device
) -> dict[str, torch.Tensor]:
    """Return an observation's entries by their slash-separated names, as tensors [B, ...] on a device.

    Args:
        obs: a dictionary or TensorDict of tensors or arrays; ``image/front`` may be an entry of that name, or ``front``
            inside ``image``.
        keys: the entries that are wanted.
        device: where they go.

    Raises:
        ConfigError: one is not there.
    """
    return {key: torch.as_tensor(_find(obs, key), device=device) for key in keys}


def _find(obs: Mapping[str, Any] | TensorDict, key: str) -> Any:
    names = obs.keys()
    if key in names:
        return obs[key]
    group, _, rest = key.partition("/")
    inner = obs[group] if rest and group in names else None
    if inner is None or rest not in inner.keys():  # noqa: SIM118 (it may be a TensorDict)
        raise ConfigError(unknown_name("entry of the observation", key, map(str, names)))
    return inner[rest]
