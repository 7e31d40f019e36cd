"""Writing of a SmolVLA in LeRobot's format, the inverse of reading one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from embodichain.ext.vla.lerobot.config import ACTION, STATE
from embodichain.ext.vla.lerobot.files import is_inside, read_object
from embodichain.ext.vla.lerobot.folder import WEIGHTS, LeRobotFolder
from embodichain.ext.vla.lerobot.names import their_weights
from embodichain.ext.vla.lerobot.processors import (
    NORMALIZER,
    POSTPROCESSOR,
    PREPROCESSOR,
    UNNORMALIZER,
)
from embodichain.ext.vla.smolvla import SmolVLA
from embodichain.ext.vla.statistics import ENDS, EPSILON, Normalization
from embodichain.utils.files import write_atomically, write_json
from embodichain.utils.state import write_safetensors


def write_lerobot_folder(
    out: Path,
    model: SmolVLA,
    source: LeRobotFolder,
    entries: Mapping[str, str],
    image_shapes: Mapping[str, Sequence[int]],
) -> list[Path]:
    """Write a model that was built from a folder as another one.

    Its processors and tokenizer are the source's: a training does not change them. Weights that have not changed are
    written as they were, also weights that our model lacks.

    Args:
        out: the folder, which exists.
        entries: our image for each of the policy's that the model reads.
        image_shapes: [height, width, channels] of our images.

    Returns:
        The files.

    Raises:
        ConfigError: the source's weights cannot be read.
        OSError: a file cannot be written.
    """
    config = out / "config.json"
    write_json(config, _changed_config(model, source, entries, image_shapes), indent=4)
    write_safetensors(out / WEIGHTS, _changed_weights(model, source))
    copied = [_copy(source.path, out, name) for name in _beside(source)]
    return [config, out / WEIGHTS, *copied]


def write_statistics(out: Path, model: SmolVLA) -> None:
    """Put the statistics that a model was fitted to, and its features, into the processors of a written folder.

    Raises:
        OSError: a file cannot be written.
    """
    config = read_object(out / "config.json", str(out))
    state_kind, action_kind = model.cfg.state_normalization, model.cfg.action_normalization
    state_std = model.state_std - EPSILON if state_kind == "MEAN_STD" else model.state_std  # which it divides by
    tensors = _statistics(STATE, state_kind, model.state_mean, state_std)
    if action_kind != "IDENTITY":
        tensors |= _statistics(ACTION, action_kind, model.action_mean, model.action_std)
    for name, step_name, features in (
        (PREPROCESSOR, NORMALIZER, config["input_features"] | config["output_features"]),
        (POSTPROCESSOR, UNNORMALIZER, config["output_features"]),
    ):
        content = read_object(out / name, str(out))
        for number, step in enumerate(content["steps"]):
            if step["registry_name"] == step_name:
                step["config"]["features"] = features
                default = f"{Path(name).stem}_step_{number}_{step_name}.safetensors"
                step["state_file"] = step.get("state_file") or default
                write_safetensors(out / step["state_file"], tensors)
        write_json(out / name, content, indent=2)


def _statistics(name: str, kind: Normalization, mean: torch.Tensor, std: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return LeRobot's statistics of a vector by name."""
    if kind == "IDENTITY":
        return {}
    if kind == "MEAN_STD":
        return {f"{name}.mean": mean.cpu(), f"{name}.std": std.cpu()}
    low, high = ENDS[kind]
    return {f"{name}.{low}": mean.cpu(), f"{name}.{high}": (mean + 2 * std).cpu()}


def _changed_config(
    model: SmolVLA, source: LeRobotFolder, entries: Mapping[str, str], image_shapes: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """Return the ``config.json``: with the images that are read, in their size, and the changes of ``model_config``."""
    features = {}
    for name, feature in source.config["input_features"].items():
        if name in entries:
            height, width, channels = image_shapes[entries[name]]
            features[name] = {**feature, "shape": [channels, height, width]}
        elif name not in source.cfg.images:
            features[name] = feature
    return {
        **source.config,
        "input_features": features,
        "empty_cameras": 0,
        "n_action_steps": model.chunk_length,
        "num_steps": model.cfg.denoising_steps,
        # The folder has all weights; true would load others first, and compute in bfloat16.
        "load_vlm_weights": False,
    }


def _changed_weights(model: SmolVLA, source: LeRobotFolder) -> dict[str, torch.Tensor]:
    weights = source.weights()
    for name, value in their_weights(model.state_dict()).items():
        if not torch.equal(weights[name].float(), value.cpu()):
            weights[name] = value.cpu()
    return weights


def _beside(source: LeRobotFolder) -> list[str]:
    """Return the names of processors, statistics, and the files of tokenizer and vision-language model in the folder.

    A name or a link of a stranger's folder may lead elsewhere: such files stay there.
    """
    beside = [source.processors.tokenizer_folder, source.processors.tokenizer.tokenizer_name, source.cfg.vlm_model_name]
    folders = [name for name in dict.fromkeys(beside) if name is not None and _is_plain(name)]
    found = [path for name in folders for path in sorted((source.path / name).glob("*")) if path.is_file()]
    own = [path for path in found if is_inside(source.path, path)]
    return [*source.processors.files, *(path.relative_to(source.path).as_posix() for path in own)]


def _is_plain(name: str) -> bool:
    return not Path(name).is_absolute() and ".." not in Path(name).parts


def _copy(source: Path, out: Path, name: str) -> Path:
    content = (source / name).read_bytes()
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out / name, lambda file: file.write(content))
    return out / name
