"""Writing of a SmolVLA in LeRobot's format, the inverse of reading one."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from embodichain.agents.rl.models.vla.lerobot.folder import WEIGHTS, LeRobotFolder
from embodichain.agents.rl.models.vla.lerobot.names import their_weights
from embodichain.agents.rl.models.vla.smolvla import SmolVLA
from embodichain.utils.files import write_atomically, write_json
from embodichain.utils.safetensors_file import write_safetensors


def write_lerobot_folder(
    out: Path,
    model: SmolVLA,
    source: LeRobotFolder,
    entries: Mapping[str, str],
    image_shapes: Mapping[str, Sequence[int]],
) -> list[Path]:
    """Write a model that was built from a folder as another one.

    Its processors and tokenizer are the source's: a training does not change them. Weights that have not changed are
    written as they were, those that our model has not as well.

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


def _changed_config(
    model: SmolVLA, source: LeRobotFolder, entries: Mapping[str, str], image_shapes: Mapping[str, Sequence[int]]
) -> dict[str, Any]:
    """Return the ``config.json``: with the images that are read, in their size, and what ``model_config`` changed."""
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
    """Return the names of processors, statistics, tokenizer and config of the vision-language model in the folder."""
    beside = [source.processors.tokenizer_folder, source.processors.tokenizer.tokenizer_name, source.cfg.vlm_model_name]
    folders = [name for name in dict.fromkeys(beside) if name is not None and (source.path / name).is_dir()]
    return [*source.processors.files, *folders]


def _copy(source: Path, out: Path, name: str) -> Path:
    if (source / name).is_dir():
        return Path(shutil.copytree(source / name, out / name))
    content = (source / name).read_bytes()
    write_atomically(out / name, lambda file: file.write(content))
    return out / name
