"""Random draws that leave torch's global generator to the learner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

__all__ = ["OwnDraws"]

# All of torch's functions that draw and take a generator.
_DRAWING: frozenset[Callable[..., Any]] = frozenset(
    (
        torch.bernoulli,
        torch.multinomial,
        torch.normal,
        torch.poisson,
        torch.rand,
        torch.rand_like,
        torch.randint,
        torch.randint_like,
        torch.randn,
        torch.randn_like,
        torch.randperm,
        torch._standard_gamma,
        *(
            getattr(Tensor, f"{name}_")
            for name in ("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "normal", "random", "uniform")
        ),
        Tensor.bernoulli,
        Tensor.multinomial,
    )
)


class OwnDraws(TorchFunctionMode):
    """While it is entered, this thread's draws come from generators of its own, one a device.

    Threads draw from torch's global generator as they come: what one of them draws depends on the others. With this,
    the learner has the global generator to itself, and an update can be repeated. Dropout takes no generator: its
    draws stay global.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch, with a generator where it draws."""
        kwargs = kwargs or {}
        if func in _DRAWING and kwargs.get("generator") is None:
            kwargs = {**kwargs, "generator": self._generator(_device_of(args, kwargs))}
        return func(*args, **kwargs)

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]


def _device_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.device:
    """Return where a function's result will be."""
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"])
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    return tensors[0].device if tensors else torch.get_default_device()
