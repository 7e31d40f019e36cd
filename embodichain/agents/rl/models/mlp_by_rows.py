"""Outputs and gradients of MLPs, computed on a processor by several threads, each for its part of the rows.

Torch's own threads share out every operation, and wait for each other after each: with layers of some hundred units
that takes as long as the products of matrices. Here a thread goes through all layers with its rows, and the threads
meet twice in a gradient step, however many layers there are. None looks for work again and again while it waits, so
that another busy process slows an update down proportionally, and not by ten times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

import torch
from tensordict import TensorDict
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import elu_, linear
from torch.nn.modules.module import _has_any_global_hook

from embodichain.agents.rl.models.block import Columns, run_networks
from embodichain.agents.rl.models.mlp import MLP

__all__ = ["RowThreads", "RunByRows", "columns_and_mlp", "mlps_by_rows"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_aten = torch.ops.aten


class _Activation(NamedTuple):
    """An activation with a slope that follows from its output.

    Attributes:
        apply_: replaces its input by the output.
        backward_: multiplies a gradient, its first argument, in place by the slope at an output, its second.
    """

    apply_: Callable[[torch.Tensor], torch.Tensor]
    backward_: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


# The slope at an output y: ELU's is 1 where y > 0, else y + 1; of ReLU 1 where y > 0, else 0; of tanh 1 - y^2.
_ACTIVATIONS: dict[type[nn.Module], _Activation] = {
    nn.ELU: _Activation(
        elu_, lambda grad, y: _aten.elu_backward.grad_input(grad, 1.0, 1.0, 1.0, True, y, grad_input=grad)
    ),
    nn.ReLU: _Activation(
        torch.relu_, lambda grad, y: _aten.threshold_backward.grad_input(grad, y, 0.0, grad_input=grad)
    ),
    nn.Tanh: _Activation(torch.tanh_, lambda grad, y: _aten.tanh_backward.grad_input(grad, y, grad_input=grad)),
}


class RowThreads:
    """Threads of one torch thread each, the calling one included; a context manager that ends them.

    Args:
        number: number of threads.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        # It starts a thread with the first item for it; none would be an error.
        self._others = ThreadPoolExecutor(max(1, number - 1), "rows", torch.set_num_threads, (1,))

    def __enter__(self) -> RowThreads:
        return self

    def __exit__(self, *_: object) -> None:
        self._others.shutdown()

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Return the function's results, of the first item from this thread and of the others from the others."""
        function = torch.no_grad()(function)  # a thread has its own mode
        others = [self._others.submit(function, item) for item in items[1:]]
        return [function(items[0]), *(other.result() for other in others)]


class RunByRows:
    """Computes the outputs of networks in threads, as ``run_networks``, float32.

    Calls that need torch's own operations, or have a network without ``columns_and_mlp``, are ``run_networks``'s.
    """

    def __init__(self, threads: RowThreads) -> None:
        self.threads = threads

    def __call__(self, networks: Sequence[nn.Module], obs: torch.Tensor, td: TensorDict) -> list[torch.Tensor]:
        """Return the networks' outputs [..., out] for an observation [..., O]; see ``run_networks``."""
        # Anomaly detection is to name the operation that failed, which takes torch's own.
        if torch.is_grad_enabled() and not (obs.requires_grad or torch.is_anomaly_enabled()):
            parts = [part for network in networks if (part := columns_and_mlp(network)) is not None]
            if len(parts) == len(networks):
                inputs = [obs if columns is None else columns(obs) for columns, _ in parts]
                return [output.float() for output in mlps_by_rows([mlp for _, mlp in parts], inputs, self.threads)]
        return run_networks(networks, obs, td)


def columns_and_mlp(network: nn.Module) -> tuple[Columns | None, MLP] | None:
    """Return a network's ``Columns``, if it has any, and the MLP behind it; None: ``mlps_by_rows`` cannot compute it.

    It computes an ``MLP`` on the CPU of linear layers with biases, of ELU, ReLU or tanh between them and nothing else,
    without hooks, of their own or of all modules, and without a single object's ``forward``: these would not be called.
    """
    columns: Columns | None = None
    if type(network) is nn.Sequential and isinstance(network[0], Columns) and _is_called_plainly(network):
        columns, network = network[0], network[1]
    return (columns, network) if isinstance(network, MLP) and _computes_by_rows(network) else None


def _computes_by_rows(network: MLP) -> bool:
    layers = list(network)
    between = {type(layer) for layer in layers[1::2]}
    return (
        type(network) is MLP
        and not _has_any_global_hook()
        and len(layers) % 2 == 1
        and all(type(x) is nn.Linear and x.bias is not None and x.weight.is_cpu for x in layers[::2])
        and len(between) <= 1
        and between <= _ACTIVATIONS.keys()
        and all(getattr(layer, "alpha", 1.0) == 1.0 for layer in layers[1::2])  # of ELU
        and all(map(_is_called_plainly, (network, *layers)))
    )


def _is_called_plainly(module: nn.Module) -> bool:
    """Return whether calling a module calls its class's ``forward`` and nothing else of the module's own."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return not any(hooks) and "forward" not in vars(module)


def mlps_by_rows(networks: Sequence[MLP], inputs: Sequence[torch.Tensor], threads: RowThreads) -> list[torch.Tensor]:
    """Return the networks' outputs [..., out] for an input [..., in] each, with the parameters' gradients.

    They equal ``network(input)``, to rounding, under ``torch.autocast`` too. The inputs get no gradient, and
    the outputs cannot be differentiated twice.

    Args:
        networks: networks with a ``columns_and_mlp``.
        inputs: tensors with the same leading dimensions.
        threads: each computes a part of the rows.
    """
    activations = [_ACTIVATIONS[type(network[1])] if len(network) > 1 else None for network in networks]
    parameters = [[p for layer in list(network)[::2] for p in (layer.weight, layer.bias)] for network in networks]
    kinds = list(zip(activations, map(len, parameters), strict=True))
    outputs = _MLPsByRows.apply(threads, kinds, [x.flatten(0, -2) for x in inputs], *chain(*parameters))
    return [output.unflatten(0, inputs[0].shape[:-1]) for output in outputs]


class _Layers(NamedTuple):
    """An MLP's layers: the activation, and weight [out, in] and bias [out] of each linear one."""

    activation: _Activation | None
    parameters: list[torch.Tensor]

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return each linear layer's input, and the output."""
        values = [x]
        for weight, bias in zip(self.parameters[::2], self.parameters[1::2], strict=True):
            if len(values) > 1 and self.activation is not None:
                self.activation.apply_(values[-1])
            values.append(linear(values[-1], weight, bias))
        return values

    def backward(self, values: list[torch.Tensor], grad: torch.Tensor) -> list[torch.Tensor]:
        """Return the parameters' gradients.

        Args:
            values: each linear layer's input.
            grad: gradient of the output.
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
"""Kind of a network: its activation, and its number of parameters."""


class _MLPsByRows(torch.autograd.Function):
    """The gradients of all MLPs together: their threads meet once forwards and once backwards."""

    @staticmethod
    def forward(
        ctx: Any, threads: RowThreads, kinds: list[_Kind], inputs: list[torch.Tensor], *parameters: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        if torch.is_autocast_enabled("cpu"):
            dtype = torch.get_autocast_dtype("cpu")
            inputs, parameters = [x.to(dtype) for x in inputs], tuple(p.to(dtype) for p in parameters)
        networks = _networks(kinds, iter(parameters))
        pieces = zip(*(x.chunk(threads.number) for x in inputs), strict=True)
        values = threads.map(
            lambda piece: [network.forward(x) for network, x in zip(networks, piece, strict=True)], list(pieces)
        )
        outputs = zip(*([of_network.pop() for of_network in of_piece] for of_piece in values), strict=True)
        ctx.threads, ctx.kinds, ctx.num_pieces = threads, kinds, len(values)
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

        first, *others = ctx.threads.map(of_piece, list(zip(values, pieces, strict=True)))
        for other in others:
            for total, part in zip(first, other, strict=True):
                total.add_(part)
        totals = iter(first)
        of_parameters = [
            next(totals) if i in used else None for i, (_, count) in enumerate(ctx.kinds) for _ in range(count)
        ]
        return None, None, None, *of_parameters


def _networks(kinds: list[_Kind], parameters: Iterator[torch.Tensor]) -> list[_Layers]:
    return [_Layers(activation, list(islice(parameters, count))) for activation, count in kinds]
