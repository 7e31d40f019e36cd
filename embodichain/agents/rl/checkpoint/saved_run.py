"""Finds runs on the disk by the names that users give on the command line."""

import glob
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodichain.agents.rl.checkpoint.file import load_checkpoint
from embodichain.agents.rl.checkpoint.folder import CheckpointFolder
from embodichain.agents.rl.checkpoint.run_access import check_links
from embodichain.agents.rl.config.named import names_config
from embodichain.utils import ConfigError, is_run_folder

__all__ = ["PROBLEM_KEY", "SavedRun", "find_run", "find_run_folder", "last_run", "names_run"]

PROBLEM_KEY = "problem"  # in the config of a checkpoint with parts that cannot be described: the reason

_WRITTEN = ("export", "rewards", "videos")  # commands write these next to a checkpoint outside a run's folder
_OF_LAST_RUN = (Path("latest"), Path("best"), Path("latest/best"))


@dataclass(frozen=True)
class SavedRun:
    """A run's folder, the path of one of its checkpoints, and that one's content."""

    folder: Path
    checkpoint: Path
    content: dict[str, Any]

    @property
    def exp_name(self) -> str:
        """Name of the experiment."""
        name: str = self.content["config"]["trainer"]["exp_name"]
        return name


def find_run(
    target: str, exp_name: str | None = None, before_read: Callable[[Path], object] = lambda folder: None
) -> SavedRun:
    """Find a run and a checkpoint of it.

    Args:
        target: a run's folder, for its latest checkpoint; ``<folder>/best``, for the best one; a checkpoint's file;
            a folder's name without date and time, for the run of that name that saved last; or ``latest`` or ``best``
            (also ``latest/best``), of the run in ``outputs`` that saved last.
        exp_name: experiment name of the runs that ``latest`` and ``best`` consider; None: all.
        before_read: function called with the run's folder before the checkpoint is read.

    Raises:
        ConfigError: there is none, it cannot be read, or its folder has links that lead out of it.
    """
    folder, file, is_best = _read_target(target, exp_name)
    if file is None and not is_run_folder(folder):
        raise _no_such_run(target)
    is_alone = file is not None and file.parent.name != "checkpoints"
    check_links(folder, _WRITTEN if is_alone else (".",))
    before_read(folder)
    if file is None:
        checkpoints = CheckpointFolder(folder / "checkpoints", "")
        checkpoint, content = checkpoints.load_best() if is_best else checkpoints.load_latest()
    else:
        checkpoint, content = file, load_checkpoint(file)
    config = content.get("config")
    if not isinstance(config, dict):
        raise ConfigError(f"{checkpoint}: is not the checkpoint of a training")
    if config.get(PROBLEM_KEY) is not None:
        raise ConfigError(
            f"{checkpoint}: was written by a script's own Trainer and does not say from what its parts can be built "
            f"again: {config[PROBLEM_KEY]}. The script itself can continue from it: "
            "trainer.load_state_dict(load_checkpoint(path))"
        )
    return SavedRun(folder, checkpoint, content)


def find_run_folder(target: str) -> Path:
    """Return the folder of the run that a user names as for :func:`find_run`, to read it; it may have no checkpoint.

    Raises:
        ConfigError: there is none, or it has links that lead out of it.
    """
    folder, _, _ = _read_target(target)
    check_links(folder)
    return folder


def names_run(target: str) -> bool:
    """Return whether a user's words name a run or a checkpoint, as :func:`find_run` takes them, and not a config."""
    path = Path(target)
    if path.exists():
        return path.suffix == ".pt" or is_run_folder(path)
    return path in _OF_LAST_RUN or (path.name == "best" and is_run_folder(path.parent))


def last_run(exp_name: str | None = None) -> Path:
    """Return the folder of the run in ``outputs``, of any or one ``exp_name``, that saved last.

    Raises:
        ConfigError: none has a checkpoint.
    """
    run = _last_saved(Path("outputs"), exp_name)
    if run is None:
        which = "" if exp_name is None else f" of '{exp_name}'"
        raise ConfigError(f"no run{which} in {Path('outputs').absolute()} has a checkpoint")
    return run


def _read_target(target: str, exp_name: str | None = None) -> tuple[Path, Path | None, bool]:
    """Return a run's folder, the checkpoint if the target is one's file, and whether the best one is meant."""
    path = Path(target)
    if path.is_file() and path.suffix == ".pt":
        return (path.parents[1] if path.parent.name == "checkpoints" else path.parent), path, False
    is_best = path.name == "best" and not path.exists()
    if path in _OF_LAST_RUN and not Path(path.parts[0]).exists():
        return last_run(exp_name), None, is_best
    path = path.parent if is_best else path
    if not path.exists():
        path = _last_saved(path.parent, path.name) or path
    if not path.is_dir():
        raise _no_such_run(target)
    return path, None, is_best


def _no_such_run(target: str) -> ConfigError:
    if names_config(target):
        return ConfigError(
            f"{target}: is a config, and no run: train it first (embodichain train {target}), or play it without a "
            f"policy (embodichain play {target} --agent random)"
        )
    return ConfigError(
        f"{target}: no such run: must be a run's folder, that folder with /best, a checkpoint's file, or 'latest' "
        "or 'best' of the run in ./outputs that saved last"
    )


def _last_saved(outputs: Path, exp_name: str | None) -> Path | None:
    """Return the run in a folder, of any or one ``exp_name``, that saved last, if any."""
    pattern = "*" if exp_name is None else f"{glob.escape(exp_name)}_" + "[0-9]" * 8 + "_" + "[0-9]" * 6
    saved = {path.parent.parent: path.stat().st_mtime for path in outputs.glob(f"{pattern}/checkpoints/*.pt")}
    return max(saved, key=saved.__getitem__) if saved else None
