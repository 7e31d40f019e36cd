"""The ``config.json`` of a LeRobot SmolVLA, and the ``model_config`` of ours that follows from it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from gymnasium import spaces
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from embodichain.ext.vla.gaussian_vla import IMAGE, INSTRUCTION
from embodichain.ext.vla.gaussian_vla import STATE as STATE_ENTRY
from embodichain.ext.vla.smolvla import Normalization
from embodichain.utils import ConfigError, configclass, field, unknown_name
from embodichain.utils.validation import from_dict

STATE, ACTION = "observation.state", "action"
"""LeRobot's names of the state and of the actions."""
OVERRIDES = (
    *("bf16", "cache_vision", "chunk_length", "denoising_steps", "gradient_checkpointing", "init_log_std"),
    *("log_std_range", "train_vlm"),
)
"""Keys of ``model_config`` that do not follow from the folder, or may differ from it."""

_VISION = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_channels"),
    *("image_size", "patch_size", "hidden_act", "layer_norm_eps"),
)
_LANGUAGE = (
    *("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size"),
    *("rms_norm_eps", "hidden_act", "attention_bias", "mlp_bias"),
)


@configclass
class FeatureCfg:
    """An entry of LeRobot's observation, or its action."""

    type: str
    """``VISUAL``, ``STATE``, ``ACTION``, ..."""
    shape: list[PositiveInt]
    """[channels, height, width] of an image, else [size]."""


@configclass
class LeRobotCfg:
    """The fields read from a ``config.json``; the rest is for LeRobot's own training."""

    input_features: dict[str, FeatureCfg] = field(kw_only=True)
    """Policy inputs by LeRobot's names. Images are read in this order."""
    output_features: dict[str, FeatureCfg] = field(kw_only=True)
    """``action``."""
    chunk_size: PositiveInt = 50
    """Actions that the flow predicts."""
    n_action_steps: PositiveInt = 50
    """Number of executed actions."""
    n_obs_steps: Literal[1] = 1
    """Observations that the policy reads."""
    max_state_dim: PositiveInt = 32
    """States are filled up with zeros to this size."""
    max_action_dim: PositiveInt = 32
    """Size of the flow's actions."""
    resize_imgs_with_padding: tuple[PositiveInt, PositiveInt] = (512, 512)
    """Width and height of the images that the vision encoder gets."""
    empty_cameras: NonNegativeInt = 0
    """Number of image features that may be missing. They are masked: leaving them out is the same."""
    adapt_to_pi_aloha: Literal[False] = False
    """Conversions for one robot."""
    num_steps: PositiveInt = 10
    """Euler steps."""
    vlm_model_name: str = "HuggingFaceTB/SmolVLM2-500M-Video-Instruct"
    """Folder or hub repository of the vision-language model's config."""
    add_image_special_tokens: Literal[False] = False
    """Tokens around each image."""
    attention_mode: Literal["cross_attn"] = "cross_attn"
    """Kind of attention from the expert to the language model's layers."""
    num_vlm_layers: int = 16
    """Layers of the language model that are used; not positive: all."""
    num_expert_layers: int = -1
    """Layers of the expert; not positive: as many."""
    self_attn_every_n_layers: PositiveInt = 2
    """Number n: in every n-th layer actions attend to each other."""
    expert_width_multiplier: Annotated[float, Field(gt=0)] = 0.75
    """The expert's width by the language model's."""
    min_period: PositiveFloat = 4e-3
    """Of the time embedding."""
    max_period: PositiveFloat = 4.0
    """Of the time embedding."""
    use_peft: Literal[False] = False
    """Whether the weights are adapters."""

    @model_validator(mode="after")
    def _is_supported(self) -> Self:
        if self.n_action_steps > self.chunk_size:
            raise ValueError(f"n_action_steps {self.n_action_steps} is above chunk_size {self.chunk_size}")
        if self.num_expert_layers > 0 and self.num_expert_layers != self.num_vlm_layers:
            raise ValueError(f"num_expert_layers {self.num_expert_layers} must be num_vlm_layers {self.num_vlm_layers}")
        if self.resize_imgs_with_padding[0] != self.resize_imgs_with_padding[1]:
            raise ValueError(f"resize_imgs_with_padding {list(self.resize_imgs_with_padding)} must be square")
        for place, features, name in (
            ("input_features", self.input_features, STATE),
            ("output_features", self.output_features, ACTION),
        ):
            if name not in features or len(features[name].shape) != 1:
                raise ValueError(
                    f"{place} must have '{name}' of shape [size]; it has {', '.join(features) or 'nothing'}"
                )
        if not self.images:
            raise ValueError(f"input_features must have one of type VISUAL, got {', '.join(self.input_features)}")
        return self

    @property
    def images(self) -> dict[str, FeatureCfg]:
        """The image features by name, in order."""
        return {name: feature for name, feature in self.input_features.items() if feature.type == "VISUAL"}


def read_config(content: Mapping[str, Any], place: str) -> LeRobotCfg:
    """Return the typed part of a ``config.json``."""
    if content["type"] != "smolvla":
        raise ConfigError(f"{place}: a LeRobot policy of type '{content['type']}'; only 'smolvla' is read")
    known = LeRobotCfg.__dataclass_fields__
    return from_dict(LeRobotCfg, {key: value for key, value in content.items() if key in known}, place)


def model_config(
    cfg: LeRobotCfg, vlm: Any, cameras: list[str], state_kind: Normalization, action_kind: Normalization
) -> dict[str, Any]:
    """Return the ``model_config`` of our ``SmolVLA``.

    Args:
        vlm: transformers' ``SmolVLMConfig`` of the vision-language model.
        cameras: our names of its images, in its order.
        state_kind, action_kind: kinds of statistics.
    """
    layers = vlm.text_config.num_hidden_layers
    used = min(cfg.num_vlm_layers, layers) if cfg.num_vlm_layers > 0 else layers
    language = {key: getattr(vlm.text_config, key) for key in _LANGUAGE} | {"num_hidden_layers": used}
    return {
        "cameras": cameras,
        "image_size": next(iter(cfg.images.values())).shape[1:],
        "state_dim": cfg.input_features[STATE].shape[0],
        "action_dim": cfg.output_features[ACTION].shape[0],
        "chunk_length": cfg.n_action_steps,
        "flow_length": cfg.chunk_size,
        "state_width": cfg.max_state_dim,
        "action_width": cfg.max_action_dim,
        "image_input": cfg.resize_imgs_with_padding[0],
        "vision": {key: getattr(vlm.vision_config, key) for key in _VISION},
        "language": language,
        "scale_factor": vlm.scale_factor,
        "expert_width": cfg.expert_width_multiplier,
        "self_attention_every": cfg.self_attn_every_n_layers,
        "denoising_steps": cfg.num_steps,
        "state_normalization": state_kind,
        "action_normalization": action_kind,
        "periods": [cfg.min_period, cfg.max_period],
    }


PLACE = "policy.vla_config.features"


def find_entries(cfg: LeRobotCfg, given: Mapping[str, str | None]) -> dict[str, str]:
    """Return the entry for each image feature that is used, in the policy's order.

    Args:
        given: entries by feature, as the user wrote; None: the image is left out, which a clone of the policy has not
            any more. A feature ``observation.images.x`` that is not in it is the entry ``image/x``.
    """
    for name, entry in given.items():
        if name not in cfg.images and entry is not None:
            raise ConfigError(f"{PLACE}: {unknown_name('image feature', name, cfg.images)}")
        if entry is not None and not entry.startswith(IMAGE):
            raise ConfigError(f"{PLACE}.{name}: must be an entry '{IMAGE}<camera>' or null, got '{entry}'")
    entries = {
        name: given.get(name, IMAGE + name.removeprefix("observation.").removeprefix("images.")) for name in cfg.images
    }
    used = {name: entry for name, entry in entries.items() if entry is not None}
    if not used:
        raise ConfigError(f"{PLACE}: leaves out all images of the policy: {', '.join(cfg.images)}")
    return used


def check_entries(
    cfg: LeRobotCfg, entries: Mapping[str, str], observed: Mapping[str, spaces.Space[Any]], place: str
) -> None:
    """Check that an environment has a policy's inputs.

    Args:
        entries: result of ``find_entries``.
        observed: the environment's observation by entry.
        place: the config's key and the policy's folder, for the message.
    """
    shapes = {name: list(space.shape or ()) for name, space in observed.items()}
    problems = [
        f"{name} needs an image '{entry}'" for name, entry in entries.items() if shapes.get(entry, [])[2:] != [3]
    ]
    problems += [f"it needs '{entry}'" for entry in (STATE_ENTRY, INSTRUCTION) if entry not in shapes]
    if problems:
        read = ", ".join(f"{name} {feature.shape}" for name, feature in cfg.input_features.items())
        there = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ConfigError(
            f"{place}: {'; '.join(problems)}. The policy reads {read}; the environment has {there}. Name images in "
            f"{PLACE}"
        )
