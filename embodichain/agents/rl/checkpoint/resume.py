"""Where a training goes on, and whether it may."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodichain import __version__
from embodichain.agents.rl.checkpoint.content import check_content
from embodichain.agents.rl.checkpoint.file import load_checkpoint
from embodichain.agents.rl.checkpoint.folder import CheckpointFolder
from embodichain.agents.rl.checkpoint.run_access import check_links
from embodichain.utils import ConfigError, logger
from embodichain.utils.errors import placed
from embodichain.utils.utility import load_config_file

__all__ = [
    "ResumePoint",
    "changes_of_env_file",
    "check_config",
    "find_resume_point",
    "find_run_folder",
    "last_run",
]

# What decides nothing about the training itself may change.
_MAY_CHANGE = (
    "trainer.gym_config",  # a path; what is in the file is compared
    "trainer.iterations",
    "trainer.device",
    "trainer.sim_device",  # the physics itself says whether it can go on
    "gym_config.env.sim_cfg.sim_device",
    "trainer.distributed",
    "trainer.hang_seconds",
    "trainer.headless",
    "trainer.enable_rt",
    "trainer.gpu_id",
    "trainer.enable_eval",
    "trainer.num_eval_envs",
    "trainer.num_eval_episodes",
    "trainer.eval_freq",
    "trainer.save_freq",
    "trainer.keep_last",
    "trainer.profile",
    "trainer.viewer",
    "trainer.max_skipped_updates",
    "trainer.torch_threads",  # the trainer says what another number changes
    "trainer.use_wandb",
    "trainer.wandb_project_name",
    "trainer.events.eval",
    "trainer.import_modules",
    "gym_config.max_episodes",
    "gym_config.env.sim_cfg.num_threads",
)
_RECORDERS = ("record_camera_data", "record_camera_data_async")


@dataclass(frozen=True)
class ResumePoint:
    """A checkpoint to go on from.

    Attributes:
        run: the run's folder.
        path: the checkpoint.
        content: what is in it.
    """

    run: Path
    path: Path
    content: dict[str, Any]


def find_run_folder(target: str, exp_name: str | None = None) -> Path:
    """Return the folder of the run to go on with.

    Args:
        target: a run's folder; a checkpoint in it; or ``latest``, for the run in ``outputs`` that saved last.
        exp_name: of the runs that ``latest`` looks at; None: all.

    Raises:
        ConfigError: there is none, or it has links that lead out of it.
    """
    with placed("--resume latest: "):
        run = last_run(exp_name) if target == "latest" else Path(target)
    if not run.is_dir():
        if run.parent.name != "checkpoints":
            raise ConfigError(f"--resume {target}: must be a run's folder, a file in its 'checkpoints', or 'latest'")
        if not run.exists():
            raise ConfigError(f"{run}: no such checkpoint")
        run = run.parent.parent
    check_links(run)
    return run


def find_resume_point(target: str, exp_name: str | None = None) -> ResumePoint:
    """Find a checkpoint.

    Args:
        target: as for :func:`find_run_folder`; a folder stands for its latest checkpoint.
        exp_name: likewise.

    Raises:
        ConfigError: there is none, it cannot be read, or the run's folder has links that lead out of it.
    """
    run, path = find_run_folder(target, exp_name), Path(target)
    if target == "latest" or path.is_dir():
        path, content = CheckpointFolder(run / "checkpoints", "").load_latest()
    else:
        content = load_checkpoint(path)
    check_content(content, path)
    if content["code_version"] != __version__:
        logger.log_warning(
            f"{path}: was written by version {content['code_version']}, this is {__version__}: the training may go on "
            "otherwise than it would have"
        )
    return ResumePoint(run, path, content)


def check_config(before: dict[str, Any], now: dict[str, Any], target: str) -> None:
    """Compare the config of a checkpoint with the one to go on with.

    Raises:
        ConfigError: they differ in what decides about the training; with a line for each difference.
    """
    lines = _differences(_comparable(before), _comparable(now), "")
    if lines:
        raise ConfigError("\n".join([f"--resume {target}: the config is not that of the run:", *lines]))


def changes_of_env_file(config: dict[str, Any]) -> list[str]:
    """Return how the file that a run's environment config came from differs from it now, a line each.

    Args:
        config: of a checkpoint. A file that is not there any more does not differ.
    """
    path = config["trainer"].get("gym_config")
    if not isinstance(path, str) or not Path(path).is_file():
        return []
    now = {key: value for key, value in load_config_file(path).items() if key != "$schema"}
    return _differences(config["gym_config"], now, "")


def last_run(exp_name: str | None = None) -> Path:
    """Return the folder of the run in ``outputs`` that saved last.

    Args:
        exp_name: of the runs to look at; None: all.

    Raises:
        ConfigError: none has a checkpoint.
    """
    pattern = "*" if exp_name is None else f"{exp_name}_" + "[0-9]" * 8 + "_" + "[0-9]" * 6
    saved = {path.parent.parent: path.stat().st_mtime for path in Path("outputs").glob(f"{pattern}/checkpoints/*.pt")}
    if not saved:
        which = "" if exp_name is None else f" of '{exp_name}'"
        raise ConfigError(f"no run{which} in {Path('outputs').absolute()} has a checkpoint")
    return max(saved, key=saved.__getitem__)


def _comparable(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config without what may change."""
    plain: dict[str, Any] = json.loads(json.dumps(config))
    plain.get("gym_config", {}).pop("$schema", None)
    for path in _MAY_CHANGE:
        *blocks, key = path.split(".")
        node: Any = plain
        for block in blocks:
            node = node.get(block) if isinstance(node, dict) else None
        if isinstance(node, dict):
            node.pop(key, None)
    for events in (_block(plain, "trainer", "events", "train"), _block(plain, "gym_config", "env", "events")):
        for name in [name for name in events if _block(events, name).get("func") in _RECORDERS]:
            del events[name]
    return plain


def _block(node: dict[str, Any], *path: str) -> dict[str, Any]:
    """Return an inner block, or an empty one where there is none."""
    for key in path:
        inner = node.get(key)
        node = inner if isinstance(inner, dict) else {}
    return node


def _differences(before: Any, now: Any, place: str) -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        keys = [*before, *(key for key in now if key not in before)]
        lines = []
        for key in keys:
            inner = f"{place}.{key}" if place else key
            if key in before and key in now:
                lines += _differences(before[key], now[key], inner)
            elif not (before.get(key) or now.get(key)):
                continue  # an empty block is as good as none
            elif key in before:
                lines.append(f"{inner}: {json.dumps(before[key])} in the run, not there now")
            else:
                lines.append(f"{inner}: not there in the run, {json.dumps(now[key])} now")
        return lines
    return [] if before == now else [f"{place}: {json.dumps(before)} in the run, {json.dumps(now)} now"]
