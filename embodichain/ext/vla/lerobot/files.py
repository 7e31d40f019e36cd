"""The files of a LeRobot SmolVLA: its ``config.json``, its pre- and postprocessor, its tokenizer.

Errors are one line. Shapes: D size of a vector.
"""

import importlib.util
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import torch
from gymnasium import spaces
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import nn

from embodichain.ext.vla import gaussian_vla
from embodichain.ext.vla.smolvla import ENDS, EPSILON, Normalization, check_transformers, half_width
from embodichain.utils import ConfigError, configclass, field, from_dict, install_extra, unknown_name, utility
from embodichain.utils.state import read_safetensors

MODEL_PATH = "policy.vla_config.model_path"
"""Key of the user's model, for messages."""


def is_inside(folder: Path, path: Path) -> bool:
    """Return whether a path, links followed, leads into a folder, or into the hub's copy of its repository."""
    root = folder.parent.parent if folder.parent.name == "snapshots" else folder  # there the hub's files are links
    return path.resolve().is_relative_to(root.resolve())


def find_file(folder: Path, name: str) -> Path:
    """Return the path of a file next to others."""
    path = folder / name
    if ".." in Path(name).parts or not is_inside(folder, path):
        raise ConfigError(f"{folder}: '{name}' must be the name of a file in this folder")
    if not path.exists():
        raise ConfigError(f"{path}: is missing; it belongs to a policy in LeRobot's format")
    return path


def download(repo: str, revision: str | None, patterns: Sequence[str]) -> Path:
    """Return the folder with the files of a repository that match; only missing files are downloaded.

    Args:
        revision: a commit, tag or branch; None: the main branch.
    """
    name = repo if revision is None else f"{repo}@{revision}"
    if importlib.util.find_spec("huggingface_hub") is None:
        raise ConfigError(
            f"'{name}' is no folder here, and to download it needs huggingface_hub: {install_extra('vla')}"
        )
    import huggingface_hub  # noqa: PLC0415 (optional extra)

    return Path(huggingface_hub.snapshot_download(repo, revision=revision, allow_patterns=list(patterns)))


def load_weights(
    model: nn.Module, weights: Mapping[str, torch.Tensor], source: str, initial: Sequence[str] = ()
) -> None:
    """Load a state dict.

    Args:
        source: origin of the weights, for messages.
        initial: beginnings of the names that the state dict may lack; they stay as they are.
    """
    missing, unknown = model.load_state_dict(weights, strict=False)
    problems = [f"no '{name}'" for name in missing if not name.startswith(tuple(initial))]
    problems += [f"'{name}' is not the model's" for name in unknown]
    if problems:
        raise ConfigError(f"{source}: weights do not fit the model: {'; '.join(problems)}")


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
    """Shortest period of the time embedding."""
    max_period: PositiveFloat = 4.0
    """Longest period of the time embedding."""
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
        if entry is not None and not entry.startswith(gaussian_vla.IMAGE):
            raise ConfigError(f"{PLACE}.{name}: must be an entry '{gaussian_vla.IMAGE}<camera>' or null, got '{entry}'")
    entries = {
        name: given.get(name, gaussian_vla.IMAGE + name.removeprefix("observation.").removeprefix("images."))
        for name in cfg.images
    }
    used = {name: entry for name, entry in entries.items() if entry is not None}
    if not used:
        raise ConfigError(f"{PLACE}: leaves out all images of the policy: {', '.join(cfg.images)}")
    return used


def check_entries(
    cfg: LeRobotCfg, entries: Mapping[str, str], observed: Mapping[str, spaces.Space[Any]], place: str
) -> None:
    """Check that an environment, which observes ``observed``, has a policy's inputs."""
    shapes = {name: list(space.shape or ()) for name, space in observed.items()}
    problems = [
        f"{name} needs an image '{entry}'" for name, entry in entries.items() if shapes.get(entry, [])[2:] != [3]
    ]
    problems += [
        f"it needs '{entry}'" for entry in (gaussian_vla.STATE, gaussian_vla.INSTRUCTION) if entry not in shapes
    ]
    if problems:
        read = ", ".join(f"{name} {feature.shape}" for name, feature in cfg.input_features.items())
        there = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ConfigError(
            f"{place}: {'; '.join(problems)}. The policy reads {read}; the environment has {there}. Name images in "
            f"{PLACE}"
        )


PREPROCESSOR, POSTPROCESSOR = "policy_preprocessor.json", "policy_postprocessor.json"

NORMALIZER, UNNORMALIZER = "normalizer_processor", "unnormalizer_processor"
_NEW_LINE, _TOKENIZER = "smolvla_new_line_processor", "tokenizer_processor"
# In addition to the needed ones; names, the batch dimension and devices are nothing to do here.
_OTHERS = (_NEW_LINE, "rename_observations_processor", "to_batch_processor", "device_processor")


@configclass
class StepCfg:
    """A step of a processor."""

    registry_name: str = field(kw_only=True)
    """Name of the computation."""
    config: dict[str, Any] = field(default_factory=dict)
    """Its arguments."""
    state_file: str | None = None
    """Its tensors."""
    artifacts: dict[str, str] = field(default_factory=dict)
    """Its companion files and folders, by the argument that names them."""


@configclass
class NormalizerCfg:
    """The arguments of a normalising step."""

    features: dict[str, FeatureCfg] = field(kw_only=True)
    """Normalised features."""
    norm_map: dict[str, Normalization] = field(kw_only=True)
    """Kind of normalisation by a feature's type."""
    eps: Annotated[float, Field(ge=EPSILON, le=EPSILON)] = EPSILON
    """Added to a std; always the same."""
    normalize_observation_keys: list[str] | None = None
    """Entries of the observation that are normalised; null: all."""


@configclass
class TokenizerCfg:
    """The arguments of the step that makes tokens."""

    tokenizer_name: str = field(kw_only=True)
    """Folder or hub repository."""
    max_length: PositiveInt = 512
    """Tokens of a text; the rest is cut off."""
    task_key: str = "task"
    """LeRobot's name of the text."""
    padding_side: str = "right"
    """Padding is masked: nothing depends on its place."""
    padding: str = "max_length"
    """Padding is masked: nothing depends on its length."""
    truncation: bool = True
    """Whether longer texts are cut off."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of a vector; see ``embodichain.ext.vla.smolvla``.

    Attributes:
        kind: IDENTITY where there are none.
        mean, std: [D].
    """

    kind: Normalization
    mean: torch.Tensor
    std: torch.Tensor


@dataclass(frozen=True)
class Processors:
    """The processors of a folder.

    Attributes:
        state_kind, action_kind: normalisation that they ask for, with or without statistics.
        tokenizer_folder: tokenizer's folder, if it is next to them.
        ends_in_new_line: whether a text gets a new line.
        files: names of their files in the folder.
    """

    state: Statistics
    action: Statistics
    state_kind: Normalization
    action_kind: Normalization
    tokenizer: TokenizerCfg
    tokenizer_folder: str | None
    ends_in_new_line: bool
    files: tuple[str, ...]


class _Normalizer:
    """A normalising step: its arguments and tensors."""

    def __init__(self, folder: Path, processor: str, step: StepCfg) -> None:
        self._place = f"{folder / processor}: {step.registry_name}"
        self._cfg = from_dict(NormalizerCfg, step.config, self._place)
        self._tensors = {} if step.state_file is None else read_safetensors(find_file(folder, step.state_file))
        if self._cfg.norm_map.get("VISUAL", "IDENTITY") != "IDENTITY":
            raise ConfigError(f"{self._place}.norm_map.VISUAL: must be IDENTITY, got {self._cfg.norm_map['VISUAL']}")

    def kind(self, name: str, feature_type: str) -> Normalization:
        """Return how a feature of a type is normalised, if there are statistics."""
        keys = self._cfg.normalize_observation_keys
        is_left_out = feature_type == "STATE" and keys is not None and name not in keys
        return "IDENTITY" if is_left_out else self._cfg.norm_map.get(feature_type, "IDENTITY")

    def statistics(self, name: str, feature_type: str, size: int) -> Statistics:
        """Return the statistics of a feature of a type."""
        how = self.kind(name, feature_type)
        is_left_out = feature_type == "STATE" and name not in self._cfg.features
        found = {
            key.removeprefix(f"{name}."): value
            for key, value in self._tensors.items()
            if key.rpartition(".")[0] == name
        }
        if how == "IDENTITY" or is_left_out or not found:
            return Statistics("IDENTITY", torch.zeros(size), torch.ones(size))
        mean, std = (self._statistic(found, key, name, size) for key in ENDS.get(how, ("mean", "std")))
        if how == "MEAN_STD":
            return Statistics(how, mean, std)
        return Statistics(how, mean, half_width(mean, std))

    def _statistic(self, found: dict[str, torch.Tensor], key: str, name: str, size: int) -> torch.Tensor:
        if key not in found or list(found[key].shape) != [size]:
            got = list(found[key].shape) if key in found else f"only {', '.join(sorted(found))}"
            raise ConfigError(f"{self._place}: statistic '{name}.{key}' [{size}] is needed, got {got}")
        if not found[key].isfinite().all():
            raise ConfigError(f"{self._place}: statistic '{name}.{key}' has a number that is not finite")
        return found[key].float()


def read_processors(folder: Path, cfg: LeRobotCfg) -> Processors:
    """Read pre- and postprocessor of a folder."""
    before = _read_steps(folder, PREPROCESSOR, (_TOKENIZER, NORMALIZER))
    after = _read_steps(folder, POSTPROCESSOR, (UNNORMALIZER,))
    normalizer = _Normalizer(folder, PREPROCESSOR, before[NORMALIZER])
    unnormalizer = _Normalizer(folder, POSTPROCESSOR, after[UNNORMALIZER])
    size = cfg.output_features[ACTION].shape[0]
    given, action = (each.statistics(ACTION, "ACTION", size) for each in (normalizer, unnormalizer))
    same = given.kind == action.kind and torch.equal(given.mean, action.mean) and torch.equal(given.std, action.std)
    if given.kind != "IDENTITY" and not same:
        raise ConfigError(f"{folder}: {PREPROCESSOR} and {POSTPROCESSOR} have other statistics of '{ACTION}'")
    tokenizer = before[_TOKENIZER]
    states = [step.state_file for step in (before[NORMALIZER], after[UNNORMALIZER]) if step.state_file is not None]
    return Processors(
        state=normalizer.statistics(STATE, "STATE", cfg.input_features[STATE].shape[0]),
        action=action,
        state_kind=normalizer.kind(STATE, "STATE"),
        action_kind=unnormalizer.kind(ACTION, "ACTION"),
        tokenizer=from_dict(TokenizerCfg, tokenizer.config, f"{folder / PREPROCESSOR}: {_TOKENIZER}"),
        tokenizer_folder=tokenizer.artifacts.get("tokenizer_name"),
        ends_in_new_line=_NEW_LINE in before,
        files=(PREPROCESSOR, POSTPROCESSOR, *states),
    )


def _read_steps(folder: Path, name: str, needed: Collection[str]) -> dict[str, StepCfg]:
    """Return a processor's steps by name."""
    path = find_file(folder, name)
    content = utility.load_config_file(path)
    keys = StepCfg.__dataclass_fields__
    steps = [
        from_dict(StepCfg, {k: v for k, v in step.items() if k in keys}, f"{path}: steps[{i}]")
        for i, step in enumerate(content["steps"])
    ]
    found = {step.registry_name: step for step in steps}
    for step in found:
        if step not in (*needed, *_OTHERS):
            raise ConfigError(f"{path}: {unknown_name('step', step, (*needed, *_OTHERS))}")
    if "device_processor" in found and found["device_processor"].config.get("float_dtype") is not None:
        raise ConfigError(f"{path}: device_processor.float_dtype: must be null: numbers are float32")
    for step in needed:
        if step not in found:
            raise ConfigError(f"{path}: has no step '{step}', only {', '.join(found)}")
    return found


_CONFIG = "config.json"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_VOCABULARY = ("vocab.json", "merges.txt")  # of tokenizers without tokenizer.json
_REPOSITORY = re.compile(r"^[\w.-]+/[\w.-]+$")


def read_vlm_config(folder: Path, name: str) -> Any:
    """Return transformers' ``SmolVLMConfig`` of the vision-language model that a policy's folder names."""
    check_transformers()
    path = _find(folder, name, (_CONFIG,)) / _CONFIG
    content = utility.load_config_file(path)
    if content.get("model_type") != "smolvlm":
        raise ConfigError(f"{path}: model_type must be 'smolvlm', got {content.get('model_type')!r}")
    from transformers import SmolVLMConfig  # noqa: PLC0415 (optional extra)

    config: Any = SmolVLMConfig.from_dict(content)
    kind = config.text_config.model_type
    if kind != "llama":
        raise ConfigError(f"{path}: text_config.model_type must be 'llama', got {kind!r}")
    return config


def read_tokenizer(folder: Path, processors: Processors, vocabulary: int) -> Any:
    """Return transformers' tokenizer of a policy: from its folder, or that of its vision-language model.

    Args:
        vocabulary: number of tokens that the language model knows.
    """
    wanted = (_TOKENIZER_FILES[0], _VOCABULARY[0])
    if processors.tokenizer_folder is None:
        path = _find(folder, processors.tokenizer.tokenizer_name, wanted)
    else:
        path = find_file(folder, processors.tokenizer_folder)
        if not _has_one(path, wanted):
            find_file(path, wanted[0])
    from transformers import AutoTokenizer  # noqa: PLC0415 (optional extra)

    tokenizer = AutoTokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
    if len(tokenizer) > vocabulary:
        raise ConfigError(f"{path}: has {len(tokenizer)} tokens, the model knows {vocabulary}")
    return tokenizer


def _find(folder: Path, name: str, wanted: tuple[str, ...]) -> Path:
    """Return the folder of a model that has one of the wanted files."""
    places = [folder / name, Path(name).absolute()]
    for path in places:
        if _has_one(path, wanted):
            return path
    missing = f"{wanted[0]} of '{name}' is missing: looked in {places[0]}, {places[1]}"
    if not _REPOSITORY.match(name):
        raise ConfigError(missing)
    return download(name, None, (_CONFIG, *_TOKENIZER_FILES, *_VOCABULARY))


def _has_one(path: Path, files: tuple[str, ...]) -> bool:
    return any((path / file).is_file() for file in files)
