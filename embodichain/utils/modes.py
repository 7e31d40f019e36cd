"""Training mode and evaluation mode of networks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def keeping_modes(network: nn.Module) -> Iterator[None]:
    """Give each module of a network its own mode back when this is left.

    ``network.train(was_training)`` would set them all alike: a part that is frozen in evaluation mode, so that its
    dropout and its statistics rest, would be trained with from then on.
    """
    modes = [(module, module.training) for module in network.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
