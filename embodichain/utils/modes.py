"""Training mode and evaluation mode of networks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def keeping_modes(network: nn.Module) -> Iterator[None]:
    """Restore the training or evaluation mode of each module of a network at the end of the block.

    ``network.train(was_training)`` would set all modules alike, including parts frozen in evaluation mode.
    """
    modes = [(module, module.training) for module in network.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
