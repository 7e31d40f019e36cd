"""Multilayer perceptrons and their configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt
from torch import nn

from embodichain.utils import ConfigError, configclass
from embodichain.utils.configclass import field
from embodichain.utils.device import check_memory
from embodichain.utils.errors import unknown_name

Activation = Literal["elu", "gelu", "leaky_relu", "mish", "relu", "selu", "sigmoid", "silu", "softplus", "tanh"]

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "leaky_relu": nn.LeakyReLU,
    "mish": nn.Mish,
    "relu": nn.ReLU,
    "selu": nn.SELU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
}


@configclass
class NetworkCfg:
    """The layers of an MLP."""

    hidden_sizes: list[PositiveInt] = field(default_factory=lambda: [256, 256])
    """Widths of the hidden layers, from the input on; empty: a linear map."""
    activation: Activation = "relu"
    """After every hidden layer."""
    layer_norm: bool = False
    """Layer normalisation of every hidden layer, before its activation."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability of dropping a hidden unit in training mode."""
    orthogonal_init: bool = False
    """Orthogonal weights and zero biases (see ``MLP``) instead of PyTorch's initialisation."""
    last_activation: Activation | None = None
    """After the output layer."""


@configclass
class MLPCfg:
    """A network block of the training config: ``{"type": "mlp", "network_cfg": {...}}``."""

    type: Literal["mlp"] = "mlp"
    """Kind of network."""
    network_cfg: NetworkCfg = NetworkCfg()
    """Its layers."""


def build_mlp_from_cfg(cfg: MLPCfg | Mapping[str, Any], in_dim: int, out_dim: int, *, output_gain: float = 1.0) -> MLP:
    """Build the network that a config block describes.

    Args:
        cfg: the block, ``{"type": "mlp", "network_cfg": {...}}``.
        output_gain: gain of the last layer with ``orthogonal_init``.

    Raises:
        pydantic.ValidationError: unknown keys or invalid values, all of them listed.
    """
    if not isinstance(cfg, MLPCfg):
        cfg = MLPCfg(**cfg)
    return MLP(in_dim, out_dim, **vars(cfg.network_cfg), output_gain=output_gain)


def make_activation(name: str) -> nn.Module:
    """Return the activation of this name, which may work in place.

    Raises:
        ConfigError: unknown name; the message lists the known ones.
    """
    if name not in _ACTIVATIONS:
        raise ConfigError(unknown_name("activation", name, _ACTIVATIONS))
    # Their gradients need the output alone, so they work in place: a tenth less memory traffic.
    return _ACTIVATIONS[name](inplace=True) if name in ("elu", "relu") else _ACTIVATIONS[name]()


class MLP(nn.Sequential):
    """Linear layers with activations between them: [..., in_dim] -> [..., out_dim].

    With ``orthogonal_init`` weights are orthogonal, of gain sqrt(2) in the hidden layers and ``output_gain`` in the
    last one, and biases are zero. PPO's reference implementation has a last gain of 0.01 for the actor, so that
    first actions hardly depend on the state, and of 1 for the critic: Huang et al., "The 37 Implementation Details
    of Proximal Policy Optimization", ICLR Blog Track 2022.

    Args:
        in_dim: input size.
        out_dim: output size.
        hidden_sizes: widths of the hidden layers.
        activation: after every hidden layer.
        layer_norm: normalise every hidden layer before its activation.
        dropout: probability of dropping a hidden unit in training mode.
        orthogonal_init: initialise as above.
        last_activation: after the output layer, if any.
        output_gain: gain of the last layer's orthogonal weights.

    Raises:
        ConfigError: an activation is unknown; the message lists the known ones; or the parameters do not fit the
            memory.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        hidden_sizes: Sequence[int],
        activation: str = "relu",
        layer_norm: bool = False,
        dropout: float = 0.0,
        orthogonal_init: bool = False,
        last_activation: str | None = None,
        output_gain: float = 1.0,
    ) -> None:
        widths = [in_dim, *hidden_sizes, out_dim]
        num_parameters = sum((before + 1) * after for before, after in pairwise(widths))
        check_memory("network_cfg.hidden_sizes", f"the {num_parameters:,} parameters of a network", 4 * num_parameters)
        layers: list[nn.Module] = []
        width = in_dim
        for hidden in hidden_sizes:
            layers.append(nn.Linear(width, hidden))
            if layer_norm:
                layers.append(nn.LayerNorm(hidden))
            layers.append(make_activation(activation))
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
            width = hidden
        output = nn.Linear(width, out_dim)
        layers.append(output)
        if last_activation is not None:
            layers.append(make_activation(last_activation))
        super().__init__(*layers)

        if orthogonal_init:
            for layer in layers:
                if isinstance(layer, nn.Linear):
                    nn.init.orthogonal_(layer.weight, output_gain if layer is output else math.sqrt(2))
                    nn.init.zeros_(layer.bias)
