"""What would make the host wait for a device, found without one."""

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["HostSyncError", "no_host_sync", "no_wait_for_the_gpu", "work_as_on_a_device"]


class HostSyncError(AssertionError):
    """The host would wait here."""


# The host reads a value, or a size that depends on values.
_READING_OPERATORS = (
    "_local_scalar_dense",
    "nonzero.",
    "masked_select",
    "_unique",
    "unique",
    "equal.",
    "is_nonzero",
    "_linalg_check_errors",
    "bincount",
    "repeat_interleave.Tensor",
)
_READING_METHODS = ("item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "__array__")
# Data of the host goes to the device, from memory that is not pinned.
_SENDING_FUNCTIONS = ("tensor", "as_tensor", "asarray")


class _Operators(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = str(func).removeprefix("aten.")
        if name.startswith(_READING_OPERATORS):
            raise HostSyncError(f"{func} waits for the device")
        if name.startswith("index") and any(_is_mask(part) for part in _flat(args[1:2])):
            raise HostSyncError(f"{func} with a mask waits for the device")
        return func(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        ours = [module for name, module in sys.modules.items() if name.startswith("embodichain.")]
        self._constants = [v for module in ours for v in vars(module).values() if isinstance(v, Tensor)]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in _READING_METHODS:
            raise HostSyncError(f"Tensor.{name} waits for the device")
        if name == "to" and any(args[0] is constant for constant in self._constants):
            raise HostSyncError("Tensor.to sends a module's constant to the device, and waits for it")
        if name in _SENDING_FUNCTIONS and not (args and isinstance(args[0], Tensor)):
            raise HostSyncError(f"torch.{name} sends data to the device, and waits for it")
        if name in ("__getitem__", "__setitem__") and any(
            isinstance(part, list | np.ndarray) for part in _flat(args[1:2])
        ):
            raise HostSyncError(f"Tensor.{name} with a list sends it to the device, and waits")
        return func(*args, **(kwargs or {}))


def work_as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let code that takes a shorter way with tensors on the CPU take the one of a device."""
    monkeypatch.setattr("embodichain.lab.sim.random._fast", lambda value: value)
    monkeypatch.setattr("embodichain.lab.sim.rows._is_compared", lambda value: False)
    monkeypatch.setattr("embodichain.agents.rl.collector.sync_collector._is_free_to_read", lambda flags: False)


@contextmanager
def no_host_sync(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Raise HostSyncError wherever the host would wait for a device, if the tensors were on one."""
    monkeypatch.setattr(torch, "from_numpy", _refuse_numpy)
    with _Functions(), _Operators():
        yield


@contextmanager
def no_wait_for_the_gpu() -> Iterator[None]:
    """Make torch raise an error wherever the host waits for the GPU."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "a prototype feature"
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def _refuse_numpy(array: np.ndarray) -> Tensor:
    raise HostSyncError("torch.from_numpy has data of the host, and to send it to the device means to wait")


def _is_mask(part: Any) -> bool:
    return isinstance(part, Tensor) and part.dtype == torch.bool


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple) or (isinstance(value, list) and any(isinstance(v, Tensor) for v in value)):
            yield from _flat(value)
        else:
            yield value
