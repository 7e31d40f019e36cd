"""Exports the SmolVLA of a run as a folder that LeRobot loads. Legend: N environments."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch

from embodichain.agents.rl.checkpoint.saved_run import SavedRun, find_run
from embodichain.agents.rl.models import SmolVLA, VLAPolicy, VLAPolicyCfg
from embodichain.agents.rl.models.block import space_size
from embodichain.commands.arguments import checked_path, output_folder
from embodichain.ext.vla.gaussian_vla import STATE
from embodichain.ext.vla.lerobot.features import find_entries
from embodichain.ext.vla.lerobot.folder import LeRobotFolder, build_lerobot_model, for_robot
from embodichain.ext.vla.lerobot.writing import write_lerobot_folder, write_statistics
from embodichain.ext.vla.loading import read_model_path
from embodichain.ext.vla.policy import without_adapters
from embodichain.tools.open_run import OpenRun, open_run
from embodichain.tools.steps import TOLERANCE, ParityError, Step, format_export, record_steps
from embodichain.utils import ConfigError
from embodichain.utils.observations import entry_spaces

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

    Raises:
        ConfigError: there is no such run, its policy did not begin from a SmolVLA of LeRobot, or the folder cannot be
            written.
        ParityError: the folder's actions differ on ``observations`` of ``envs`` environments; it is deleted.
    """
    saved = find_run(target)
    folder = out or saved.folder / "export" / NAME
    with open_run(saved, envs, "cpu", allowed_imports) as opened:
        source, entries = _source(saved, opened)
        _make_empty(folder)
        steps = record_steps(
            opened.env, opened.policy, opened.device, opened.policy.obs_keys, observations, _SEED_OFFSET
        )
        model = cast("SmolVLA", without_adapters(cast("VLAPolicy", opened.policy)))
        spaces = entry_spaces(opened.env.single_observation_space)
        shapes = {entry: spaces[entry].shape for entry in entries.values()}
        try:
            files = write_lerobot_folder(folder, model, source, entries, shapes)
            if not torch.equal(model.state_mean, source.processors.state.mean):  # demonstrations were imitated since
                write_statistics(folder, model)
            largest = _compare(model, folder, entries, steps)
        except ParityError:
            shutil.rmtree(folder)
            raise
        except OSError as error:
            raise ConfigError(f"--out {folder}: cannot be written: {error}") from error
    compared = {"observations": len(steps) * envs, "difference": largest}
    names = {"inputs": [*entries, "observation.state", "task"], "measurements": [], "outputs": ["action"]}
    return {**compared, **names, "files": files}


def _source(saved: SavedRun, opened: OpenRun) -> tuple[LeRobotFolder, dict[str, str]]:
    """Return the folder that a run's policy began from, and our image for each of its images that is used."""
    block = opened.config.policy
    path = block.vla_config.model_path if isinstance(block, VLAPolicyCfg) else None
    source = None if path is None else read_model_path(path)
    if not isinstance(block, VLAPolicyCfg) or not isinstance(source, LeRobotFolder):
        raise ConfigError(
            f"--format {NAME}: {saved.folder}: only for a policy that began from LeRobot's SmolVLA, whose folder is "
            "policy.vla_config.model_path"
        )
    observed, action_space = entry_spaces(opened.env.single_observation_space), opened.env.single_action_space
    source = for_robot(source, observed[STATE].shape[0], space_size(action_space))
    return source, find_entries(source.cfg, block.vla_config.features)


def _make_empty(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        raise ConfigError(f"--out {folder}: cannot be made: {error.strerror}") from error
    if not is_empty:
        raise ConfigError(f"--out {folder}: has files already; name another folder, or remove it")


@torch.no_grad()
def _compare(model: SmolVLA, folder: Path, entries: dict[str, str], steps: Sequence[Step]) -> float:
    """Return the largest difference between the chunks of a model and of the folder, from the same noise.

    Raises:
        ParityError: the difference is above 1e-5 of the largest action, or NaN.
    """
    written = read_model_path(folder)
    assert isinstance(written, LeRobotFolder)
    changes = {"bf16": model.cfg.bf16}
    again = build_lerobot_model(written, entries, changes, "cpu")[0].eval()
    largest, size = 0.0, 1.0
    for i, step in enumerate(steps):
        noise = torch.randn(len(step.action), *model.flow_shape)
        ours, theirs = model.predict(step.inputs, noise), again.predict(step.inputs, noise)
        difference, size = float((ours - theirs).abs().max()), max(size, float(ours.abs().max()))
        if not difference <= TOLERANCE * size:
            raise ParityError(
                f"step {i} of {len(steps)}: the exported policy's action differs from the policy's by "
                f"{difference:.3g}, allowed are {TOLERANCE * size:g}"
            )
        largest = max(largest, difference)
    return largest
