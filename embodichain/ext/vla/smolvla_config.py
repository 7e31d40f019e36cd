"""The config of SmolVLA, and the sizes of the action expert that follow from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from embodichain.ext.vla.gaussian_vla import GaussianVLACfg
from embodichain.utils import ConfigError, configclass, field, unknown_name

PLACE = "policy.vla_config.model_config"


@configclass
class SmolVLACfg(GaussianVLACfg):
    """The ``model_config`` of ``SmolVLA``; images are resized to the vision encoder's input."""

    vision: dict[str, Any] = field(default_factory=dict)
    """Fields of transformers' ``SmolVLMVisionConfig``."""
    language: dict[str, Any] = field(default_factory=dict)
    """Fields of transformers' ``LlamaConfig``. Its vocabulary must include the environment's tokens. The expert has the
    same numbers of layers, heads and heads for keys and values."""
    scale_factor: PositiveInt = 4
    """scale_factor x scale_factor patches of an image are one token."""
    train_vlm: bool = False
    """Train the vision-language model too, not only the expert, the critic and the layers around them."""
    expert_width: Annotated[float, Field(gt=0)] = 0.75
    """E by D."""
    self_attention_every: PositiveInt = 2
    """Number k: in layers 0, k, 2k, ... actions attend to earlier ones and the prefix; else to the prefix alone."""
    denoising_steps: PositiveInt = 10
    """Euler steps from noise to actions; the last one is stochastic."""
    flow_length: PositiveInt | None = None
    """F, actions that the flow predicts; the first ``chunk_length`` are executed. null: ``chunk_length``."""
    state_width: PositiveInt | None = None
    """The state is filled up with zeros to this size. null: ``state_dim``."""
    action_width: PositiveInt | None = None
    """W: the flow's actions have this size, of which the first ``action_dim`` are executed. null: ``action_dim``."""
    image_input: PositiveInt | None = None
    """Height and width that images are resized to, pixels. null: the vision encoder's ``image_size``."""
    state_normalization: Normalization = "MEAN_STD"
    """Kind of the state's statistics."""
    action_normalization: Normalization = "IDENTITY"
    """Kind of the actions' statistics, if the flow's actions are normalised."""
    periods: tuple[PositiveFloat, PositiveFloat] = (4e-3, 4.0)
    """Shortest and longest period of the time embedding."""
    gradient_checkpointing: bool = False
    """Compute each Euler step again for its gradients: a fraction of the memory, a third more time."""
    cache_vision: bool = False
    """Store the features of each image in the rollout, instead of computing them again in each update; the vision
    encoder must not be trained."""

    @model_validator(mode="after")
    def _has_places(self) -> Self:
        for name, wide, least in (
            ("flow_length", self.flow_length, "chunk_length"),
            ("state_width", self.state_width, "state_dim"),
            ("action_width", self.action_width, "action_dim"),
        ):
            if wide is not None and wide < getattr(self, least):
                raise ValueError(f"{name} {wide} is below {least} {getattr(self, least)}")
        if self.cache_vision and self.train_vlm:
            raise ValueError("cache_vision: only without train_vlm")
        return self


def image_input(vision: Any, cfg: SmolVLACfg) -> int:
    """Return height and width of the images that the vision encoder gets, pixels."""
    size = int(cfg.image_input or vision.image_size)
    across, rest = divmod(size, vision.patch_size)
    if rest or across % cfg.scale_factor:
        raise ConfigError(
            f"{PLACE}.vision: an image of {size} pixels must be a multiple of {cfg.scale_factor} "
            f"(scale_factor) patches of {vision.patch_size}"
        )
    return size


def expert_fields(text: Any, cfg: SmolVLACfg) -> dict[str, Any]:
    """Return the fields of the expert's ``LlamaConfig`` for the language model's."""
    width = int(text.hidden_size * cfg.expert_width)
    same = [
        *("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps"),
        *("hidden_act", "attention_bias", "mlp_bias"),
    ]
    return {name: getattr(text, name) for name in same} | {
        "vocab_size": 1,  # it has no words
        "hidden_size": width,
        # 8/3 of the width, rounded up to a multiple of 256
        "intermediate_size": 256 * math.ceil(int(4 * int(2 * width / 3)) / 256),
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),
    }


def transformers_config(cls: type, key: str, values: Mapping[str, Any]) -> Any:
    """Build a config of transformers from ``model_config.<key>``; unknown keys are errors."""
    place = f"{PLACE}.{key}"
    known = [*cls().to_dict(), *getattr(cls, "attribute_map", {})]
    for name in values:
        if name not in known:
            raise ConfigError(f"{place}.{name}: {unknown_name('key', name, known)}")
    return cls(**values)


Normalization = Literal["IDENTITY", "MEAN_STD", "MIN_MAX", "QUANTILES", "QUANTILE10"]
"""Kinds of scaling of a vector by statistics: to mean 0 and std 1, or a range to [-1, 1]; LeRobot's names."""

EPSILON = 1e-8
"""Added to a std that is divided by."""
ENDS = {"MIN_MAX": ("min", "max"), "QUANTILES": ("q01", "q99"), "QUANTILE10": ("q10", "q90")}
"""The statistics that are the ends of a range, by kind."""

_QUANTILES = {"MIN_MAX": (0.0, 1.0), "QUANTILES": (0.01, 0.99), "QUANTILE10": (0.1, 0.9)}


def shift_of(kind: str) -> float:
    """Return the shift added to a normalised vector: a range is scaled to [-1, 1]."""
    return 0.0 if kind in ("IDENTITY", "MEAN_STD") else -1.0


def normalized(x: torch.Tensor, mean: torch.Tensor, std: torch.Tensor, kind: str) -> torch.Tensor:
    """Return vectors [..., D] normalised."""
    return (x - mean) / divisor(std, kind) + shift_of(kind)


def denormalized(x: torch.Tensor, mean: torch.Tensor, std: torch.Tensor, kind: str) -> torch.Tensor:
    """Return the vectors [..., D] of normalised ones."""
    return (x - shift_of(kind)) * std + mean


def fitted(x: torch.Tensor, kind: Normalization) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the statistics of vectors [M, D] as mean and std [D]; ``IDENTITY`` changes nothing."""
    if kind == "IDENTITY":
        return x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])
    if kind == "MEAN_STD":
        is_constant = x.amax(0) == x.amin(0)  # else rounding would leave a std that is not 0
        return x.double().mean(0).float(), x.double().std(0, correction=0).float().masked_fill(is_constant, 0.0)
    places = x.new_tensor(_QUANTILES[kind])
    low, high = torch.stack([column.quantile(places) for column in x.T], dim=1)
    return low, half_width(low, high)


def half_width(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return half the width of ranges, which is never 0."""
    return torch.where(high == low, EPSILON, high - low) / 2


def divisor(std: torch.Tensor, kind: str) -> torch.Tensor:
    """Return the divisor of vectors, [D]."""
    return std + EPSILON if kind == "MEAN_STD" else std
