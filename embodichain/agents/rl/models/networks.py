"""Multilayer perceptrons, SimBa, networks that read images too, users' own, and building them from config blocks.

Legend: ... any batch dimensions, H height, W width, C channels, O flattened observation size.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeVar

import torch
from gymnasium import spaces
from pydantic import (
    Discriminator,
    Field,
    PositiveFloat,
    PositiveInt,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models.policy import PolicyCfg, PolicySpaces
from embodichain.utils import ConfigError, configclass, doors, field, placed, unknown_name
from embodichain.utils.device import check_memory
from embodichain.utils.module_utils import check_arguments, check_free
from embodichain.utils.observations import entry_columns, entry_spaces

Activation = Literal["elu", "gelu", "leaky_relu", "mish", "relu", "selu", "sigmoid", "silu", "softplus", "tanh"]

N = TypeVar("N", bound=type[nn.Module])

BUILT_IN = ("mlp", "simba", "cnn")

# Gains of the last layers where orthogonal_init is on; see MLP.
_OUTPUT_GAINS = {"actor": 0.01, "critic": 1.0}

_NETWORKS: dict[str, type[nn.Module]] = {}

_ACTIVATIONS: dict[str, type[nn.Module]] = {
    kind.__name__.lower(): kind
    for kind in (nn.ELU, nn.GELU, nn.Mish, nn.ReLU, nn.SELU, nn.Sigmoid, nn.SiLU, nn.Softplus, nn.Tanh)
} | {"leaky_relu": nn.LeakyReLU}

# Rows of a large batch that pass through all layers together on a CPU: its cache holds their activations.
_ROWS = 1024

_TRUNCATED_STD = 0.87962566103423978  # std of a standard normal that is truncated at -2 and 2


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


@configclass
class SimBaNetworkCfg:
    """The layers of a SimBa network."""

    width: PositiveInt = 128
    """Width of the residual stream; blocks have 4 times as many hidden units."""
    num_blocks: PositiveInt = 2
    """Residual blocks."""
    output_gain: PositiveFloat = 1.0
    """Gain of the output layer's orthogonal weights; PPO's actors often have 0.01."""


@configclass
class SimBaCfg:
    """A network block of the training config: ``{"type": "simba", "network_cfg": {...}}``."""

    type: Literal["simba"] = "simba"
    """Kind of network."""
    network_cfg: SimBaNetworkCfg = SimBaNetworkCfg()
    """Its layers."""


def make_activation(name: str) -> nn.Module:
    """Return the activation of this name, which may work in place."""
    # Their gradients need the output alone, so they work in place: a tenth less memory traffic.
    return _ACTIVATIONS[name](inplace=True) if name in ("elu", "relu") else _ACTIVATIONS[name]()


class Layers(nn.Sequential):
    """Layers one after another: [..., in_dim] -> [..., out_dim]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs [..., out_dim] for inputs [..., in_dim]."""
        if x.device.type != "cpu" or not torch.is_grad_enabled() or len(x) <= _ROWS:
            return super().forward(x)
        return torch.cat([super(Layers, self).forward(rows) for rows in x.split(_ROWS)])


class MLP(Layers):
    """Linear layers with activations between them: [..., in_dim] -> [..., out_dim].

    With ``orthogonal_init`` weights are orthogonal, of gain sqrt(2) in the hidden layers and ``output_gain`` in the
    last one, and biases are zero. PPO's reference implementation has a last gain of 0.01 for the actor, so that
    first actions hardly depend on the state, and of 1 for the critic: Huang et al., "The 37 Implementation Details
    of Proximal Policy Optimization", ICLR Blog Track 2022.

    The other arguments are as in ``NetworkCfg``.
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


class Residual(nn.Sequential):
    """Adds the output of its layers to their input, [..., width]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return input plus output."""
        out: torch.Tensor = x + super().forward(x)
        return out


class SimBa(Layers):
    """Residual blocks between linear layers: [..., in_dim] -> [..., out_dim].

    Lee et al., "SimBa: Simplicity Bias for Scaling Up Parameters in Deep Reinforcement Learning", 2024: a linear layer,
    blocks of layer normalisation, linear to 4 width, ReLU and linear, then layer normalisation and a linear layer.
    ``normalize_obs`` of the policy is the paper's normalisation of observations. Weights of the blocks are normal of
    variance 2 / inputs, truncated at two std, weights of the other layers orthogonal; biases are zero.

    ``SimBaNetworkCfg`` describes the other arguments.
    """

    def __init__(
        self, in_dim: int, out_dim: int, width: int = 128, num_blocks: int = 2, output_gain: float = 1.0
    ) -> None:
        num_parameters = (in_dim + out_dim + 3) * width + out_dim + num_blocks * (8 * width + 7) * width
        check_memory("network_cfg.width", f"the {num_parameters:,} parameters of a network", 4 * num_parameters)
        blocks = [
            Residual(
                nn.LayerNorm(width), nn.Linear(width, 4 * width), make_activation("relu"), nn.Linear(4 * width, width)
            )
            for _ in range(num_blocks)
        ]
        first, last = nn.Linear(in_dim, width), nn.Linear(width, out_dim)
        super().__init__(first, *blocks, nn.LayerNorm(width), last)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.zeros_(layer.bias)
                # A normal truncated at two std has 0.88 of its std.
                std = math.sqrt(2 / layer.in_features) / _TRUNCATED_STD
                nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
        nn.init.orthogonal_(first.weight)
        nn.init.orthogonal_(last.weight, output_gain)


class MLPs(nn.Sequential):
    """E networks of equal layers side by side, each layer one batched product: [..., in_dim] -> [E, ..., out_dim].

    Args:
        networks: MLPs, or SimBa networks, whose parameters are copied.
    """

    def __init__(self, networks: Sequence[Layers]) -> None:
        self.size = len(networks)
        super().__init__(*(_side_by_side(layers) for layers in zip(*networks, strict=True)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs [E, ..., out_dim] for inputs [..., in_dim]."""
        out: torch.Tensor = super().forward(x.reshape(-1, x.shape[-1]).expand(self.size, -1, -1))
        return out.unflatten(1, x.shape[:-1])


class _Linears(nn.Module):
    """Linear layers side by side: [E, B, in] -> [E, B, out]."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().t() for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]).unsqueeze(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(self.bias, x, self.weight)


class _LayerNorms(nn.Module):
    """Layer normalisations side by side, [E, B, H]."""

    def __init__(self, layers: Sequence[nn.LayerNorm]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in layers]).unsqueeze(1))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]).unsqueeze(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addcmul(self.bias, nn.functional.layer_norm(x, x.shape[-1:]), self.weight)


def _side_by_side(layers: Sequence[Any]) -> nn.Module:
    if isinstance(layers[0], Residual):
        return Residual(*map(_side_by_side, zip(*layers, strict=True)))
    stacked = {nn.Linear: _Linears, nn.LayerNorm: _LayerNorms}.get(type(layers[0]))
    return layers[0] if stacked is None else stacked(layers)  # an activation, or dropout


def build_mlp_from_cfg(cfg: MLPCfg | Mapping[str, Any], in_dim: int, out_dim: int, *, output_gain: float = 1.0) -> MLP:
    """Build the network of a config block; ``output_gain`` is the last layer's with ``orthogonal_init``."""
    if not isinstance(cfg, MLPCfg):
        cfg = MLPCfg(**cfg)
    return MLP(in_dim, out_dim, **vars(cfg.network_cfg), output_gain=output_gain)


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


@configclass
class NetworkTypeCfg:
    """The block of a registered network: ``{"type": "residual", "network_cfg": {...}}``."""

    type: Annotated[str, Field(json_schema_extra={"not": {"enum": [*BUILT_IN]}})]
    """A registered name."""
    network_cfg: dict[str, Any] = {}
    """Arguments of the network's class, without ``in_dim`` and ``out_dim``."""

    @field_validator("type")
    @classmethod
    def _is_known(cls, value: str) -> str:
        get_network_class(value)
        return value

    @field_validator("network_cfg")
    @classmethod
    def _are_arguments(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "type" in info.data:
            check_arguments(get_network_class(info.data["type"]), 2, value)
        return value


def register_network(name: str, override: bool = False) -> Callable[[N], N]:
    """Register the decorated module for ``actor.type`` and ``critic.type``.

    The class is built as ``cls(in_dim, out_dim, **network_cfg)`` and maps [..., in_dim] to [..., out_dim].

    Args:
        override: replace another class of this name.
    """

    def register(cls: N) -> N:
        if name in BUILT_IN:
            raise ConfigError(f"network '{name}': is the name of a built-in network")
        if not override:
            check_free(_NETWORKS, name, cls, "network")
        _NETWORKS[name] = cls
        return cls

    return register


def get_network_class(name: str) -> type[nn.Module]:
    """Return the class of a registered name."""
    if name not in _NETWORKS:
        if (found := doors.load(doors.NETWORKS, name)) is None:
            known = {*BUILT_IN, *_NETWORKS, *doors.entries(doors.NETWORKS)}
            raise ConfigError(unknown_name("network type", name, known))
        register_network(name)(found)
    return _NETWORKS[name]


def _kind(block: Any) -> str:
    kind = block.get("type", "mlp") if isinstance(block, Mapping) else getattr(block, "type", "mlp")
    return kind if kind in BUILT_IN else "registered"


NetworkBlock = Annotated[
    Annotated[MLPCfg, Tag("mlp")]
    | Annotated[SimBaCfg, Tag("simba")]
    | Annotated[CNNCfg, Tag("cnn")]
    | Annotated[NetworkTypeCfg, Tag("registered")],
    Discriminator(_kind),
]
"""An ``actor`` or ``critic`` block."""


def build_network(
    cfg: MLPCfg | SimBaCfg | CNNCfg | NetworkTypeCfg,
    role: Literal["actor", "critic"],
    policy: PolicyCfg,
    given: PolicySpaces,
    out_dim: int,
    extra_dim: int = 0,
) -> nn.Module:
    """Build an actor or critic for ``run_network`` from its block ``cfg`` in the block ``policy``.

    Args:
        extra_dim: columns that it reads behind the flat observation, such as an action's.
    """
    columns = group_columns(policy, role, given)
    if columns is not None and extra_dim:
        columns = torch.cat((columns, torch.arange(given.obs_dim, given.obs_dim + extra_dim)))
    in_dim = given.obs_dim + extra_dim if columns is None else len(columns)
    select = None if columns is None else Columns(columns)
    if isinstance(cfg, CNNCfg):
        shapes = image_shapes(cfg.keys, f"policy.{role}.keys", given)
        with placed(f"policy.{role}: "):
            return CNN(cfg, shapes, in_dim, out_dim, _OUTPUT_GAINS[role], select)
    if in_dim == 0:
        raise ConfigError(f"policy.{role}: there is no entry to read but images, which take a network of type 'cnn'")
    network: nn.Module
    with placed(f"policy.{role}."):
        if isinstance(cfg, NetworkTypeCfg):
            network = get_network_class(cfg.type)(in_dim, out_dim, **cfg.network_cfg)
            with torch.no_grad():
                shape = list(network.eval()(torch.zeros(2, in_dim)).shape)
            if shape != [2, out_dim]:  # another last size may pass for a batch
                raise ConfigError(f"type: '{cfg.type}' returns {shape} for [2, {in_dim}], needed is [2, {out_dim}]")
            network.train()
        elif isinstance(cfg, SimBaCfg):
            network = SimBa(in_dim, out_dim, **vars(cfg.network_cfg))
        else:
            network = build_mlp_from_cfg(cfg, in_dim, out_dim, output_gain=_OUTPUT_GAINS[role])
    return network if select is None else nn.Sequential(select, network)


def group_entries(groups: Mapping[str, list[str]], group: str, space: spaces.Dict) -> dict[str, slice]:
    """Return the columns of the flat observation of each entry in a group of ``policy.obs_groups``, by name."""
    columns, patterns = entry_columns(space), groups.get(group, ["*"])
    for i, pattern in enumerate(patterns):
        if pattern != "*" and not any(fnmatchcase(name, pattern) for name in columns):
            place = f"policy.obs_groups.{group}[{i}]"
            raise ConfigError(f"{place}: {unknown_name('entry or pattern', pattern, columns)}")
    return {name: x for name, x in columns.items() if any(fnmatchcase(name, pattern) for pattern in patterns)}


def group_columns(policy: PolicyCfg, group: str, given: PolicySpaces) -> torch.Tensor | None:
    """Return the columns of the flat observation in an observation group, int64, or None for all."""
    if "*" in policy.obs_groups.get(group, ["*"]):
        return None
    chosen = group_entries(policy.obs_groups, group, given.structured(f"policy.obs_groups.{group}")).values()
    return torch.tensor([i for x in chosen for i in range(x.start, x.stop)], dtype=torch.int64)


def run_network(network: nn.Module, obs: torch.Tensor, td: TensorDict) -> torch.Tensor:
    """Return a network's output [..., out] for the flat observation [..., O], and its images in ``td``.

    It is float32 with every ``trainer.precision``.
    """
    out: torch.Tensor = network(obs, td["entries"]) if isinstance(network, CNN) else network(obs)
    return out.float()


def network_keys(*networks: nn.Module | None) -> tuple[str, ...]:
    """Return the unique entries that networks read in addition to the flat observation."""
    readers = [network for network in networks if isinstance(network, CNN | ImageEncoder)]
    return tuple(dict.fromkeys(key for network in readers for key in network.keys))


class Columns(nn.Module):
    """Selects columns (int64) of the flat observation: [..., O] -> [..., len(columns)]."""

    columns: torch.Tensor

    def __init__(self, columns: torch.Tensor) -> None:
        super().__init__()
        # Not in the state dict: they are the environment's.
        self.register_buffer("columns", columns, persistent=False)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the columns."""
        return obs[..., self.columns]


def image_shapes(keys: Sequence[str], place: str, given: PolicySpaces) -> dict[str, tuple[int, int, int]]:
    """Return (height, width, channels) of images of the observation, by name."""
    entries = entry_spaces(given.structured(place))
    images = {name: space.shape for name, space in entries.items() if len(space.shape) == 3}
    if unknown := [key for key in keys if key not in images]:
        raise ConfigError(f"{place}: {unknown_name('image', unknown[0], images)}")
    return {key: images[key] for key in keys}
