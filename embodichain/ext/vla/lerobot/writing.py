"""Writing of a SmolVLA in LeRobot's format, the inverse of reading one."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from embodichain.agents.rl.build import OpenRun, open_run
from embodichain.agents.rl.checkpoint.saved_run import SavedRun, find_run
from embodichain.agents.rl.models import VLAPolicy, VLAPolicyCfg
from embodichain.agents.rl.models.policy import space_size
from embodichain.commands.arguments import checked_path, output_folder
from embodichain.ext.vla import gaussian_vla, loading, policy
from embodichain.ext.vla.lerobot import files
from embodichain.ext.vla.lerobot.folder import WEIGHTS, LeRobotFolder, build_lerobot_model, for_robot, their_weights
from embodichain.ext.vla.smolvla import ENDS, EPSILON, Normalization, SmolVLA
from embodichain.tools.policy import TOLERANCE, ParityError, Step, checked_difference, format_export, record_steps
from embodichain.utils import ConfigError, state, write_json
from embodichain.utils.observations import entry_spaces
from embodichain.utils.utility import load_config_file


def write_lerobot_folder(
    out: Path,
    model: SmolVLA,
    source: LeRobotFolder,
    entries: Mapping[str, str],
    image_shapes: Mapping[str, Sequence[int]],
) -> list[Path]:
    """Write a model that was built from a folder as another one; return the files.

    Its processors and tokenizer are the source's: a training does not change them. Weights that have not changed are
    written as they were, also weights that our model lacks.

    Args:
        out: the folder, which exists.
        entries: our image for each of the policy's that the model reads.
        image_shapes: [height, width, channels] of our images.
    """
    config = out / "config.json"
    write_json(config, _changed_config(model, source, entries, image_shapes), indent=4)
    state.write_safetensors(out / WEIGHTS, _changed_weights(model, source))
    names = _beside(source)
    for name in names:
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.path / name, out / name)
    return [config, out / WEIGHTS, *(out / name for name in names)]


def write_statistics(out: Path, model: SmolVLA) -> None:
    """Put the statistics that a model was fitted to, and its features, into the processors of a written folder."""
    config = load_config_file(out / "config.json")
    state_kind, action_kind = model.cfg.state_normalization, model.cfg.action_normalization
    state_std = model.state_std - EPSILON if state_kind == "MEAN_STD" else model.state_std  # which it divides by
    tensors = _statistics(files.STATE, state_kind, model.state_mean, state_std)
    if action_kind != "IDENTITY":
        tensors |= _statistics(files.ACTION, action_kind, model.action_mean, model.action_std)
    for name, step_name, features in (
        (files.PREPROCESSOR, files.NORMALIZER, config["input_features"] | config["output_features"]),
        (files.POSTPROCESSOR, files.UNNORMALIZER, config["output_features"]),
    ):
        content = load_config_file(out / name)
        for number, step in enumerate(content["steps"]):
            if step["registry_name"] == step_name:
                step["config"]["features"] = features
                default = f"{Path(name).stem}_step_{number}_{step_name}.safetensors"
                step["state_file"] = step.get("state_file") or default
                state.write_safetensors(out / step["state_file"], tensors)
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
    folders = [name for name in dict.fromkeys(beside) if name is not None and not {"..", "/"} & {*Path(name).parts}]
    found = [path for name in folders for path in sorted((source.path / name).glob("*")) if path.is_file()]
    own = [path for path in found if files.is_inside(source.path, path)]
    return [*source.processors.files, *(path.relative_to(source.path).as_posix() for path in own)]


NAME = "lerobot"
_SEED_OFFSET = 4_000_003


def export(target: str, out: str | None, observations: int, envs: int, allowed_imports: Sequence[str]) -> list[str]:
    """Export for ``export --format lerobot``; return the lines for the screen."""
    folder = checked_path(out, output_folder)
    return format_export(export_lerobot(target, folder, observations, envs, allowed_imports))


def export_lerobot(
    target: str, out: Path | None, observations: int, envs: int, allowed_imports: Sequence[str]
) -> dict[str, Any]:
    """Write the policy of a run into the folder ``out``, or ``export/lerobot`` in the run's folder.

    Returns:
        As ``export_run``.
    """
    saved = find_run(target)
    folder = out or saved.folder / "export" / NAME
    with open_run(saved, envs, "cpu", allowed_imports) as opened:
        source, entries = _source(saved, opened)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise ConfigError(f"--out {folder}: has files already; name another folder, or remove it")
        steps = record_steps(
            opened.env, opened.policy, opened.device, opened.policy.obs_keys, observations, _SEED_OFFSET
        )
        model = cast("SmolVLA", policy.without_adapters(cast("VLAPolicy", opened.policy)))
        spaces = entry_spaces(opened.env.single_observation_space)
        shapes = {entry: spaces[entry].shape for entry in entries.values()}
        try:
            written = write_lerobot_folder(folder, model, source, entries, shapes)
            own, processors = dict(model.named_buffers()), source.processors
            means = {"state_mean": processors.state.mean, "action_mean": processors.action.mean}
            if any(name in own and not torch.equal(own[name], mean) for name, mean in means.items()):
                write_statistics(folder, model)  # demonstrations were imitated since
            largest = _compare(model, folder, entries, steps)
        except ParityError:
            shutil.rmtree(folder)
            raise
    compared = {"observations": len(steps) * envs, "difference": largest}
    names = {"inputs": [*entries, "observation.state", "task"], "measurements": [], "outputs": ["action"]}
    return {**compared, **names, "files": written}


def _source(saved: SavedRun, opened: OpenRun) -> tuple[LeRobotFolder, dict[str, str]]:
    """Return the folder that a run's policy began from, and our image for each of its images that is used."""
    block = opened.config.policy
    path = block.vla_config.model_path if isinstance(block, VLAPolicyCfg) else None
    source = None if path is None else loading.read_model_path(path)
    if not isinstance(block, VLAPolicyCfg) or not isinstance(source, LeRobotFolder):
        raise ConfigError(
            f"--format {NAME}: {saved.folder}: only for a policy that began from LeRobot's SmolVLA, whose folder is "
            "policy.vla_config.model_path"
        )
    observed, action_space = entry_spaces(opened.env.single_observation_space), opened.env.single_action_space
    source = for_robot(source, observed[gaussian_vla.STATE].shape[0], space_size(action_space))
    return source, files.find_entries(source.cfg, block.vla_config.features)


@torch.no_grad()
def _compare(model: SmolVLA, folder: Path, entries: dict[str, str], steps: Sequence[Step]) -> float:
    """Return the largest difference between the chunks of a model and of the folder, from the same noise."""
    written = loading.read_model_path(folder)
    assert isinstance(written, LeRobotFolder)
    changes = {"bf16": model.cfg.bf16}
    again = build_lerobot_model(written, entries, changes, "cpu")[0].eval()
    largest, size = 0.0, 1.0
    for i, step in enumerate(steps):
        noise = torch.randn(len(step.action), *model.flow_shape)
        ours, theirs = (each.predict(step.inputs, noise).numpy() for each in (model, again))
        size = max(size, float(np.abs(ours).max()))
        what = f"step {i} of {len(steps)}: the exported policy's action differs from the policy's"
        largest = max(largest, checked_difference(ours, theirs, what, TOLERANCE * size))
    return largest
