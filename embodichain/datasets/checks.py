"""Checks of the numbers in episodes. Shapes: T frames of an episode."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from embodichain.utils import ConfigError


def check_finite(frames: Mapping[str, torch.Tensor], place: str, names: Mapping[str, str]) -> None:
    """Check the frames of an episode, each [T, ...]: one that is not finite would make every parameter NaN.

    Args:
        names: names of the dataset's features, by key of ``frames``, for the message.

    Raises:
        ConfigError: a number is not finite.
    """
    for key, values in frames.items():
        if not values.is_floating_point() or values.isfinite().all():
            continue
        frame, column = (~values.reshape(len(values), -1).isfinite()).nonzero()[0].tolist()
        value = values[frame].reshape(-1)[column].item()
        raise ConfigError(
            f"{place}, frame {frame}: {names.get(key, key)}[{column}] is {value}; all numbers must be finite. "
            "Remove or repair the episode"
        )
