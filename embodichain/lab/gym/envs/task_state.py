"""What a task says of its state. Shape: N environments."""

from __future__ import annotations

import torch
from torch import Tensor

from embodichain.utils import ConfigError

__all__ = ["TaskState", "checked_task_state"]

TaskState = tuple[Tensor, Tensor, dict[str, Tensor]]
"""Success [N] bool, failure [N] bool, metrics [N] by name."""


def checked_task_state(value: object, num_envs: int, task: type) -> TaskState:
    """Return what a task's ``compute_task_state`` returned.

    Args:
        value: it.
        num_envs: N.
        task: the class that wrote the method.

    Raises:
        ConfigError: it is something else.
    """
    if not (isinstance(value, tuple) and len(value) == 3):
        raise _error(task, num_envs, _what(value))
    success, fail, metrics = value
    for name, flags in (("success", success), ("fail", fail)):
        if not (isinstance(flags, Tensor) and flags.dtype == torch.bool and flags.shape == (num_envs,)):
            raise _error(task, num_envs, f"{_what(flags)} as {name}")
    if not isinstance(metrics, dict):
        raise _error(task, num_envs, f"{_what(metrics)} as metrics")
    return success, fail, metrics


def _error(task: type, num_envs: int, got: str) -> ConfigError:
    return ConfigError(
        f"{task.__qualname__}.compute_task_state must return (success, fail, metrics): two bool tensors [N] = "
        f"[{num_envs}] and a dict of tensors [N]. Got {got}"
    )


def _what(value: object) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)} of {value.dtype}"
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__
