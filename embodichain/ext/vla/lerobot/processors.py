"""The pre- and postprocessor of a LeRobot SmolVLA: normalisation and tokens. Shapes: D size of a vector."""

import importlib.util
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, PositiveInt

from embodichain.ext.vla.files import download, find_file, read_object
from embodichain.ext.vla.lerobot.config import ACTION, STATE, FeatureCfg, LeRobotCfg
from embodichain.ext.vla.smolvla import ENDS, EPSILON, Normalization, half_width
from embodichain.utils import ConfigError, configclass, field, install_extra, unknown_name
from embodichain.utils.state import read_safetensors
from embodichain.utils.validation import from_dict

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

    def __init__(self, folder: Path, processor: str, step: StepCfg, place: str) -> None:
        self._place = f"{place}: {folder / processor}: {step.registry_name}"
        self._cfg = from_dict(NormalizerCfg, step.config, self._place)
        self._tensors = {} if step.state_file is None else read_safetensors(find_file(folder, step.state_file, place))
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


def read_processors(folder: Path, cfg: LeRobotCfg, place: str) -> Processors:
    """Read pre- and postprocessor of a folder.

    Args:
        place: place in the user's config, for messages.
    """
    before = _read_steps(folder, PREPROCESSOR, (_TOKENIZER, NORMALIZER), place)
    after = _read_steps(folder, POSTPROCESSOR, (UNNORMALIZER,), place)
    normalizer = _Normalizer(folder, PREPROCESSOR, before[NORMALIZER], place)
    unnormalizer = _Normalizer(folder, POSTPROCESSOR, after[UNNORMALIZER], place)
    size = cfg.output_features[ACTION].shape[0]
    given, action = (each.statistics(ACTION, "ACTION", size) for each in (normalizer, unnormalizer))
    same = given.kind == action.kind and torch.equal(given.mean, action.mean) and torch.equal(given.std, action.std)
    if given.kind != "IDENTITY" and not same:
        raise ConfigError(f"{place}: {folder}: {PREPROCESSOR} and {POSTPROCESSOR} have other statistics of '{ACTION}'")
    tokenizer = before[_TOKENIZER]
    states = [step.state_file for step in (before[NORMALIZER], after[UNNORMALIZER]) if step.state_file is not None]
    return Processors(
        state=normalizer.statistics(STATE, "STATE", cfg.input_features[STATE].shape[0]),
        action=action,
        state_kind=normalizer.kind(STATE, "STATE"),
        action_kind=unnormalizer.kind(ACTION, "ACTION"),
        tokenizer=from_dict(TokenizerCfg, tokenizer.config, f"{place}: {folder / PREPROCESSOR}: {_TOKENIZER}"),
        tokenizer_folder=tokenizer.artifacts.get("tokenizer_name"),
        ends_in_new_line=_NEW_LINE in before,
        files=(PREPROCESSOR, POSTPROCESSOR, *states),
    )


def _read_steps(folder: Path, name: str, needed: Collection[str], place: str) -> dict[str, StepCfg]:
    """Return a processor's steps by name."""
    path = find_file(folder, name, place)
    content = read_object(path, place)
    keys = StepCfg.__dataclass_fields__
    steps = [
        from_dict(StepCfg, {k: v for k, v in step.items() if k in keys}, f"{place}: {path}: steps[{i}]")
        for i, step in enumerate(content["steps"])
    ]
    found = {step.registry_name: step for step in steps}
    for step in found:
        if step not in (*needed, *_OTHERS):
            raise ConfigError(f"{place}: {path}: {unknown_name('step', step, (*needed, *_OTHERS))}")
    if "device_processor" in found and found["device_processor"].config.get("float_dtype") is not None:
        raise ConfigError(f"{place}: {path}: device_processor.float_dtype: must be null: numbers are float32")
    for step in needed:
        if step not in found:
            raise ConfigError(f"{place}: {path}: has no step '{step}', only {', '.join(found)}")
    return found


_CONFIG = "config.json"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
_VOCABULARY = ("vocab.json", "merges.txt")  # of tokenizers without tokenizer.json
_REPOSITORY = re.compile(r"^[\w.-]+/[\w.-]+$")


def check_transformers(place: str) -> None:
    """Check that the extra ``vla`` is installed."""
    if importlib.util.find_spec("transformers") is None:
        raise ConfigError(f"{place}: SmolVLA needs transformers: {install_extra('vla')}")


def read_vlm_config(folder: Path, name: str, place: str) -> Any:
    """Return transformers' ``SmolVLMConfig`` of the vision-language model that a policy's folder names."""
    check_transformers(place)
    path = _find(folder, name, (_CONFIG,), place) / _CONFIG
    content = read_object(path, place)
    if content.get("model_type") != "smolvlm":
        raise ConfigError(f"{place}: {path}: model_type must be 'smolvlm', got {content.get('model_type')!r}")
    from transformers import SmolVLMConfig  # noqa: PLC0415 (optional extra)

    config: Any = SmolVLMConfig.from_dict(content)
    kind = config.text_config.model_type
    if kind != "llama":
        raise ConfigError(f"{place}: {path}: text_config.model_type must be 'llama', got {kind!r}")
    return config


def read_tokenizer(folder: Path, processors: Processors, vocabulary: int, place: str) -> Any:
    """Return transformers' tokenizer of a policy: from its folder, or that of its vision-language model.

    Args:
        vocabulary: number of tokens that the language model knows.
    """
    wanted = (_TOKENIZER_FILES[0], _VOCABULARY[0])
    if processors.tokenizer_folder is None:
        path = _find(folder, processors.tokenizer.tokenizer_name, wanted, place)
    else:
        path = find_file(folder, processors.tokenizer_folder, place)
        if not _has_one(path, wanted):
            find_file(path, wanted[0], place)
    from transformers import AutoTokenizer  # noqa: PLC0415 (optional extra)

    tokenizer = AutoTokenizer.from_pretrained(str(path), local_files_only=True, trust_remote_code=False)
    if len(tokenizer) > vocabulary:
        raise ConfigError(f"{place}: {path}: has {len(tokenizer)} tokens, the model knows {vocabulary}")
    return tokenizer


def _find(folder: Path, name: str, wanted: tuple[str, ...], place: str) -> Path:
    """Return the folder of a model that has one of the wanted files."""
    places = [folder / name, Path(name).absolute()]
    for path in places:
        if _has_one(path, wanted):
            return path
    missing = f"{place}: {wanted[0]} of '{name}' is missing: looked in {places[0]}, {places[1]}"
    if not _REPOSITORY.match(name):
        raise ConfigError(missing)
    path = download(name, None, (_CONFIG, *_TOKENIZER_FILES, *_VOCABULARY), place)
    return path


def _has_one(path: Path, files: tuple[str, ...]) -> bool:
    return any((path / file).is_file() for file in files)
