"""Multilayer perceptrons, networks that read images too, and their configuration.

Legend: ... any batch dimensions, H height, W width, C channels, O width of the flat vector.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from tensordict import TensorDict
from torch import nn

from embodichain.utils import ConfigError, configclass, field
from embodichain.utils.device import check_memory

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
        output_gain: gain of the last layer with ``orthogonal_init``.
    """
    if not isinstance(cfg, MLPCfg):
        cfg = MLPCfg(**cfg)
    return MLP(in_dim, out_dim, **vars(cfg.network_cfg), output_gain=output_gain)


def make_activation(name: str) -> nn.Module:
    """Return the activation of this name, which may work in place."""
    # Their gradients need the output alone, so they work in place: a tenth less memory traffic.
    return _ACTIVATIONS[name](inplace=True) if name in ("elu", "relu") else _ACTIVATIONS[name]()


class MLP(nn.Sequential):
    """Linear layers with activations between them: [..., in_dim] -> [..., out_dim].

    With ``orthogonal_init`` weights are orthogonal, of gain sqrt(2) in the hidden layers and ``output_gain`` in the
    last one, and biases are zero. PPO's reference implementation has a last gain of 0.01 for the actor, so that
    first actions hardly depend on the state, and of 1 for the critic: Huang et al., "The 37 Implementation Details
    of Proximal Policy Optimization", ICLR Blog Track 2022.

    The other arguments are those of ``NetworkCfg``.
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


@configclass
class ConvolutionsCfg:
    """Convolutions over an image; by default as in Mnih et al., "Human-level control ...", Nature 518, 2015."""

    channels: Annotated[list[PositiveInt], Field(min_length=1)] = field(default_factory=lambda: [32, 64, 64])
    """Output channels of the convolutions, from the image on."""
    kernel_sizes: list[PositiveInt] = field(default_factory=lambda: [8, 4, 3])
    """Edge of each convolution's kernel, pixels; no padding."""
    strides: list[PositiveInt] = field(default_factory=lambda: [4, 2, 1])
    """Stride of each convolution, pixels."""
    activation: Activation = "relu"
    """After every convolution and every hidden layer."""
    orthogonal_init: bool = False
    """Orthogonal weights and zero biases of convolutions and of an MLP behind them, as in ``MLP``."""

    @model_validator(mode="after")
    def _of_one_length(self) -> Self:
        if not len(self.channels) == len(self.kernel_sizes) == len(self.strides):
            raise ValueError("channels, kernel_sizes and strides must be of one length")
        return self


@configclass
class CNNNetworkCfg(ConvolutionsCfg):
    """The layers of a CNN."""

    hidden_sizes: list[PositiveInt] = field(default_factory=lambda: [512])
    """Widths of the hidden layers behind the features of all images and the flat observation."""


@configclass
class CNNCfg:
    """A network block of the training config: ``{"type": "cnn", "keys": [...], "network_cfg": {...}}``."""

    type: Literal["cnn"] = "cnn"
    """Kind of network."""
    keys: Annotated[list[str], Field(min_length=1)] = field(kw_only=True)
    """Entries of the observation that are images, such as ``sensor/cam/color``."""
    network_cfg: CNNNetworkCfg = CNNNetworkCfg()
    """Its layers."""


@configclass
class ImageEncoderCfg:
    """The ``encoder`` block of a policy with networks that share an image encoder."""

    keys: Annotated[list[str], Field(min_length=1)] = field(kw_only=True)
    """Entries of the observation that are images, such as ``sensor/cam/color``."""
    network_cfg: ConvolutionsCfg = ConvolutionsCfg()
    """Its convolutions."""
    num_features: PositiveInt = 64
    """Numbers that it makes of all images together."""


class ImageEncoder(nn.Module):
    """Features of images for several networks: convolutions, a linear layer, layer normalisation and tanh.

    The layers behind the convolutions follow Yarats et al., "Improving Sample Efficiency in Model-Free
    Reinforcement Learning from Images", 2021: features of one scale, in [-1, 1], whatever the convolutions learn.

    Args:
        image_shapes: (H, W, C) of each of the block's keys.
    """

    def __init__(self, cfg: ImageEncoderCfg, image_shapes: Mapping[str, tuple[int, int, int]]) -> None:
        super().__init__()
        self.keys = tuple(cfg.keys)
        self.num_features = cfg.num_features
        self.encoders = nn.ModuleList(_convolutions(cfg.network_cfg, image_shapes[key][2]) for key in self.keys)
        width = sum(_num_features(cfg.network_cfg, key, image_shapes[key]) for key in self.keys)
        self.head = nn.Sequential(nn.Linear(width, cfg.num_features), nn.LayerNorm(cfg.num_features), nn.Tanh())

    def forward(self, entries: TensorDict) -> torch.Tensor:
        """Return the features [..., num_features] of images [..., H, W, C] by name."""
        out: torch.Tensor = self.head(_read_images(self.keys, self.encoders, entries))
        return out


class CNN(nn.Module):
    """Convolutions over each image, joined with the flat observation and read by an MLP.

    Images are [..., H, W, C]: uint8 is scaled to [0, 1], floats are not scaled.

    Args:
        image_shapes: (H, W, C) of each of the block's keys.
        in_dim: O.
        output_gain: gain of the last layer's weights with ``orthogonal_init``; see ``MLP``.
        select: [..., all columns] -> [..., O], applied to the flat observation first; None: all columns.
    """

    def __init__(
        self,
        cfg: CNNCfg,
        image_shapes: Mapping[str, tuple[int, int, int]],
        in_dim: int,
        out_dim: int,
        output_gain: float = 1.0,
        select: nn.Module | None = None,
    ) -> None:
        super().__init__()
        net = cfg.network_cfg
        self.select = select or nn.Identity()
        self.keys = tuple(cfg.keys)
        self.encoders = nn.ModuleList(_convolutions(net, image_shapes[key][2]) for key in self.keys)
        features = sum(_num_features(net, key, image_shapes[key]) for key in self.keys)
        self.head = MLP(
            in_dim + features,
            out_dim,
            net.hidden_sizes,
            activation=net.activation,
            orthogonal_init=net.orthogonal_init,
            output_gain=output_gain,
        )

    def forward(self, obs: torch.Tensor, entries: TensorDict) -> torch.Tensor:
        """Return the output [..., out_dim] for the flat observation and images [..., H, W, C] by name."""
        features = _read_images(self.keys, self.encoders, entries)
        out: torch.Tensor = self.head(torch.cat((self.select(obs), features), dim=-1))
        return out


def _read_images(keys: Sequence[str], encoders: nn.ModuleList, entries: TensorDict) -> torch.Tensor:
    """Return the outputs of the convolutions over each image [..., H, W, C], joined, [..., features]."""
    features = []
    for key, encoder in zip(keys, encoders, strict=True):
        images = entries[key]
        scale = 1 / 255 if images.dtype == torch.uint8 else 1.0
        channels_first = images.flatten(0, -4).permute(0, 3, 1, 2).float() * scale
        features.append(encoder(channels_first).unflatten(0, images.shape[:-3]))
    return torch.cat(features, dim=-1)


def _convolutions(cfg: ConvolutionsCfg, in_channels: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels, kernel, stride in zip(cfg.channels, cfg.kernel_sizes, cfg.strides, strict=True):
        convolution = nn.Conv2d(in_channels, channels, kernel, stride)
        if cfg.orthogonal_init:
            nn.init.orthogonal_(convolution.weight, math.sqrt(2))
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)
        layers += [convolution, make_activation(cfg.activation)]
        in_channels = channels
    return nn.Sequential(*layers, nn.Flatten())


def _num_features(cfg: ConvolutionsCfg, key: str, shape: tuple[int, int, int]) -> int:
    height, width, _ = shape
    for kernel, stride in zip(cfg.kernel_sizes, cfg.strides, strict=True):
        height, width = ((size - kernel) // stride + 1 for size in (height, width))
        if min(height, width) < 1:
            sizes = f"kernel_sizes {cfg.kernel_sizes} and strides {cfg.strides}"
            raise ConfigError(f"image '{key}' {list(shape)} is too small for convolutions with {sizes}")
    return cfg.channels[-1] * height * width
