"""Outputs and gradients of MLPs, computed on a processor by several threads, each for its part of the rows.

Torch's own threads share out every operation, and wait for each other after each: with layers of some hundred units
that takes as long as the products of matrices. Here a thread goes through all layers with its rows, and the threads
meet twice in a gradient step, however many layers there are. None looks for work again and again while it waits, so
that beside another busy process an update becomes slower by what it must, and not by ten times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, NamedTuple, TypeGuard, TypeVar

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import elu_, linear
from torch.nn.modules.module import _has_any_global_hook

from embodichain.agents.rl.models.mlp import MLP

__all__ = ["computes_by_rows", "is_called_plainly", "mlps_by_rows", "num_row_threads", "rows_in_threads"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_aten = torch.ops.aten


class _Activation(NamedTuple):
    """An activation whose slope follows from its output.

    Attributes:
        apply_: replaces its input by the output.
        backward_: multiplies a gradient, its first argument, in place by the slope at an output, its second.
    """

    apply_: Callable[[torch.Tensor], torch.Tensor]
    backward_: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


# The slope at an output y: of ELU 1 where y > 0, else y + 1; of ReLU 1 where y > 0, else 0; of tanh 1 - y^2.
_ACTIVATIONS: dict[type[nn.Module], _Activation] = {
    nn.ELU: _Activation(
        elu_, lambda grad, y: _aten.elu_backward.grad_input(grad, 1.0, 1.0, 1.0, True, y, grad_input=grad)
    ),
    nn.ReLU: _Activation(
        torch.relu_, lambda grad, y: _aten.threshold_backward.grad_input(grad, y, 0.0, grad_input=grad)
    ),
    nn.Tanh: _Activation(torch.tanh_, lambda grad, y: _aten.tanh_backward.grad_input(grad, y, grad_input=grad)),
}


class _Threads(NamedTuple):
    """How many there are, and those of them that do not call."""

    number: int
    others: ThreadPoolExecutor


_threads: _Threads | None = None  # of the process, as the number of torch's threads is


@contextmanager
def rows_in_threads(count: int) -> Iterator[None]:
    """Let ``mlps_by_rows`` compute with so many threads, of one torch thread each, while this is entered."""
    global _threads
    if count == 1:
        yield
        return
    before = _threads
    with ThreadPoolExecutor(count - 1, "rows", torch.set_num_threads, (1,)) as others:
        _threads = _Threads(count, others)
        try:
            yield
        finally:
            _threads = before


def num_row_threads() -> int:
    """Return with how many threads ``mlps_by_rows`` computes."""
    return 1 if _threads is None else _threads.number


def computes_by_rows(network: nn.Module) -> TypeGuard[MLP]:
    """Return whether ``mlps_by_rows`` computes what calling the network does.

    It does for an ``MLP`` on the CPU of linear layers with biases, of ELU, ReLU or tanh between them and nothing else,
    without what would not be called: hooks, of their own or of all modules, and a ``forward`` of a single object.
    """
    if type(network) is not MLP or _has_any_global_hook():
        return False
    layers = list(network)
    between = {type(layer) for layer in layers[1::2]}
    return (
        len(layers) % 2 == 1
        and all(type(x) is nn.Linear and x.bias is not None and x.weight.is_cpu for x in layers[::2])
        and len(between) <= 1
        and between <= _ACTIVATIONS.keys()
        and all(getattr(layer, "alpha", 1.0) == 1.0 for layer in layers[1::2])  # of ELU
        and all(map(is_called_plainly, (network, *layers)))
    )


def is_called_plainly(module: nn.Module) -> bool:
    """Return whether calling a module calls its class's ``forward`` and nothing else of the module's own."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return not any(hooks) and "forward" not in vars(module)


def mlps_by_rows(networks: Sequence[MLP], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the networks' outputs [..., out] for an input [..., in] each, with the parameters' gradients.

    They are those of ``network(input)``, to rounding, under ``torch.autocast`` too. The inputs get no gradient, and
    the outputs cannot be differentiated twice.

    Args:
        networks: each of which ``computes_by_rows``.
        inputs: all with the same leading dimensions.
    """
    activations = [_ACTIVATIONS[type(network[1])] if len(network) > 1 else None for network in networks]
    parameters = [[p for layer in list(network)[::2] for p in (layer.weight, layer.bias)] for network in networks]
    kinds = list(zip(activations, map(len, parameters), strict=True))
    outputs = _MLPsByRows.apply(kinds, [x.flatten(0, -2) for x in inputs], *chain(*parameters))
    return [output.unflatten(0, inputs[0].shape[:-1]) for output in outputs]


class _Layers(NamedTuple):
    """An MLP's: what is between the linear ones, and weight [out, in] and bias [out] of each of these."""

    activation: _Activation | None
    parameters: list[torch.Tensor]

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return what goes into each linear layer, and the output."""
        values = [x]
        for weight, bias in zip(self.parameters[::2], self.parameters[1::2], strict=True):
            if len(values) > 1 and self.activation is not None:
                self.activation.apply_(values[-1])
            values.append(linear(values[-1], weight, bias))
        return values

    def backward(self, values: list[torch.Tensor], grad: torch.Tensor) -> list[torch.Tensor]:
        """Return the parameters' gradients.

        Args:
            values: what went into each linear layer.
            grad: of the output.
        """
        grads: list[torch.Tensor] = []
        for i in reversed(range(len(values))):
            grads += [grad.sum(0), grad.t() @ values[i]]
            if i > 0:
                grad = grad @ self.parameters[2 * i]
                assert self.activation is not None
                self.activation.backward_(grad, values[i])
        return grads[::-1]


_Kind = tuple[_Activation | None, int]
"""Of a network: its activation, and how many parameters it has."""


class _MLPsByRows(torch.autograd.Function):
    """The gradients of all MLPs together: their threads meet once forwards and once backwards."""

    @staticmethod
    def forward(
        ctx: Any, kinds: list[_Kind], inputs: list[torch.Tensor], *parameters: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        if torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cpu")
            inputs, parameters = [x.to(dtype) for x in inputs], tuple(p.to(dtype) for p in parameters)
        networks = _networks(kinds, iter(parameters))
        pieces = zip(*(x.chunk(num_row_threads()) for x in inputs), strict=True)
        values = _in_threads(
            lambda piece: [network.forward(x) for network, x in zip(networks, piece, strict=True)], list(pieces)
        )
        outputs = zip(*([of_network.pop() for of_network in of_piece] for of_piece in values), strict=True)
        ctx.kinds, ctx.num_pieces = kinds, len(values)
        ctx.save_for_backward(*parameters, *(x for of_piece in values for of_network in of_piece for x in of_network))
        ctx.set_materialize_grads(False)
        return tuple(torch.cat(pieces) for pieces in outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        saved = iter(ctx.saved_tensors)
        networks = _networks(ctx.kinds, saved)
        used = [i for i, grad in enumerate(grads) if grad is not None]
        values = [[list(islice(saved, count // 2)) for _, count in ctx.kinds] for _ in range(ctx.num_pieces)]
        pieces = zip(*(g.chunk(ctx.num_pieces) for g in grads if g is not None), strict=True)

        def of_piece(piece: tuple[list[list[torch.Tensor]], tuple[torch.Tensor, ...]]) -> list[torch.Tensor]:
            values, grads = piece
            # In float32, in which the threads' parts are added.
            return [
                of_parameter.float()
                for i, grad in zip(used, grads, strict=True)
                for of_parameter in networks[i].backward(values[i], grad)
            ]

        first, *others = _in_threads(of_piece, list(zip(values, pieces, strict=True)))
        for other in others:
            for total, part in zip(first, other, strict=True):
                total.add_(part)
        totals = iter(first)
        of_parameters = [
            next(totals) if i in used else None for i, (_, count) in enumerate(ctx.kinds) for _ in range(count)
        ]
        return None, None, *of_parameters


def _networks(kinds: list[_Kind], parameters: Iterator[torch.Tensor]) -> list[_Layers]:
    return [_Layers(activation, list(islice(parameters, count))) for activation, count in kinds]


def _in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the function's results, of the first item from this thread and of each other from one of its own."""
    if _threads is None:
        return [function(item) for item in items]
    function = torch.no_grad()(function)  # a thread has its own mode
    others = [_threads.others.submit(function, item) for item in items[1:]]
    return [function(items[0]), *(other.result() for other in others)]
