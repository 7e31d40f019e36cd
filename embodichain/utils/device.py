"""Devices by name."""

from __future__ import annotations

import re

import torch

from embodichain.utils.errors import ConfigError


def resolve_device(name: str, place: str = "trainer.device") -> torch.device:
    """Return the device that a config names.

    Args:
        name: ``"auto"``, ``"cpu"`` or ``"cuda:<number>"``.
        place: the setting's name or option, for messages.

    Raises:
        ConfigError: this machine has no such device.
    """
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    match = re.fullmatch(r"cpu|cuda(?::(\d+))?", name)
    if match is None:
        raise ConfigError(f"{place}: must be 'auto', 'cpu' or 'cuda:<number>', got '{name}'")
    if name == "cpu":
        return torch.device("cpu")
    index, count = int(match[1] or 0), torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        there = f"there are {count} (cuda:0 to cuda:{count - 1})"
        if not count:
            processor = f"{place} cpu" if place.startswith("--") else f"{place}=cpu"
            there = f"CUDA is not available here. For the processor, add {processor} to the command line"
        raise ConfigError(f"{place}: '{name}' cannot be used: {there}")
    return torch.device("cuda", index)
