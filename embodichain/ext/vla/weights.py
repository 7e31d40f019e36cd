"""Weights into a model that they must fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import nn

from embodichain.utils import ConfigError


def load_weights(
    model: nn.Module, weights: Mapping[str, torch.Tensor], source: str, initial: Sequence[str] = ()
) -> None:
    """Load a state dict.

    Args:
        source: origin of the weights, for messages.
        initial: beginnings of the names that the state dict may lack; they stay as they are.

    Raises:
        ConfigError: another name is missing, is not the model's, or has another shape.
    """
    own = model.state_dict()
    missing = [name for name in own if name not in weights and not name.startswith(tuple(initial))]
    unknown = [name for name in weights if name not in own]
    shapes = [
        f"'{name}' is {list(weights[name].shape)} there and {list(value.shape)} here"
        for name, value in own.items()
        if name in weights and weights[name].shape != value.shape
    ]
    problems = [*(f"no '{name}'" for name in missing), *(f"'{name}' is not the model's" for name in unknown), *shapes]
    if problems:
        more = f", and {len(problems) - 4} more" if len(problems) > 4 else ""
        raise ConfigError(f"{source}: weights do not fit the model: {'; '.join(problems[:4])}{more}")
    model.load_state_dict(weights, strict=not initial)
