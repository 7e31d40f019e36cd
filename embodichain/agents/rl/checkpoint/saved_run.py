"""Finds runs on the disk by the names that users give on the command line."""

from __future__ import annotations

import glob
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodichain import __version__
from embodichain.agents.rl.checkpoint.content import check_content
from embodichain.agents.rl.checkpoint.file import load_checkpoint
from embodichain.agents.rl.checkpoint.folder import CheckpointFolder
from embodichain.agents.rl.checkpoint.run_access import check_links
from embodichain.agents.rl.config.named import names_config
from embodichain.agents.rl.config.trainer_cfg import is_env_config
from embodichain.utils import ConfigError, logger
from embodichain.utils.files import is_run_folder
from embodichain.utils.utility import load_config_file

__all__ = [
    "SavedRun",
    "check_is_no_config",
    "find_run",
    "find_run_folder",
    "last_run",
    "load_resumed_run",
    "names_run",
]

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


def find_run(target: str) -> SavedRun:
    """Find a run and a checkpoint of it.

    Args:
        target: a run's folder, for its latest checkpoint; ``<folder>/best``, for the best one; a checkpoint's file;
            a folder's name without date and time, for the run of that name that saved last; or ``latest`` or ``best``
            (also ``latest/best``), of the run in ``outputs`` that saved last.

    Raises:
        ConfigError: there is none, it cannot be read, or its folder has links that lead out of it.
    """
    path, is_best = _read_target(target)
    if is_run_folder(path):
        run = path
        check_links(run)
        folder = CheckpointFolder(run / "checkpoints", "")
        checkpoint, content = folder.load_best() if is_best else folder.load_latest()
    elif path.is_file() and path.suffix == ".pt":
        is_in_run = path.parent.name == "checkpoints"
        run = path.parent.parent if is_in_run else path.parent
        check_links(run, None if is_in_run else _WRITTEN)
        checkpoint, content = path, load_checkpoint(path)
    else:
        raise _no_such_run(target)
    check_content(content, checkpoint)
    return SavedRun(run, checkpoint, content)


def names_run(target: str) -> bool:
    """Return whether a user's words name a run or a checkpoint, as :func:`find_run` takes them, and not a config."""
    path = Path(target)
    if not path.exists():
        return _is_of_last_run(path) or (path.name == "best" and is_run_folder(path.parent))
    return path.suffix == ".pt" or is_run_folder(path)


def find_run_folder(target: str, exp_name: str | None = None) -> Path:
    """Return the folder of the run that a user names, to resume or to read it; it may have no checkpoint yet.

    Args:
        target: run as for :func:`find_run`.
        exp_name: experiment name of the runs that ``latest`` and ``best`` consider; None: all.

    Raises:
        ConfigError: there is none, or it has links that lead out of it.
    """
    run, _ = _read_target(target, exp_name)
    if not run.is_dir():
        if run.parent.name != "checkpoints":
            raise _no_such_run(target)
        if not run.exists():
            raise ConfigError(f"{run}: no such checkpoint")
        run = run.parent.parent
    check_links(run)
    return run


def _read_target(target: str, exp_name: str | None = None) -> tuple[Path, bool]:
    """Return the path that a user's words mean, and whether they ask for the best checkpoint of the run there."""
    if not isinstance(target, str | Path):
        raise _no_such_run(target)
    path = Path(target)
    if path.exists():
        return path, False
    is_best = _asks_for_best(path)
    if _is_of_last_run(path):
        return last_run(exp_name), is_best
    path = path.parent if is_best else path
    runs = _saved_runs(path.parent, path.name)
    return (max(runs, key=runs.__getitem__) if runs and not path.exists() else path), is_best


def _asks_for_best(path: Path) -> bool:
    return path.name == "best" and not path.exists()


def _is_of_last_run(path: Path) -> bool:
    """Return whether a path is none, but words for the run that saved last."""
    return path in _OF_LAST_RUN and not Path(path.parts[0]).exists()


def check_is_no_config(target: str, instead: str = "") -> None:
    """Raise a ConfigError if the given run is a config; ``instead`` is advised before training it."""
    if not names_config(target):
        return
    path = Path(target)
    if path.is_file() and is_env_config(load_config_file(path)):
        raise ConfigError(
            f"{target}: is an environment's config, and no run: name a run, or train a config that names it"
        )
    raise ConfigError(f"{target}: is a config, and no run: {instead}train it first: embodichain train {target}")


def _no_such_run(target: object) -> ConfigError:
    if isinstance(target, str | Path):
        check_is_no_config(str(target))
    return ConfigError(
        f"{target}: no such run: must be a run's folder, that folder with /best, a checkpoint's file, or 'latest' "
        "or 'best' of the run in ./outputs that saved last"
    )


def load_resumed_run(folder: Path, target: str) -> SavedRun:
    """Read the checkpoint to continue from: the checkpoint that ``target`` names, or else the folder's latest.

    Args:
        folder: result of :func:`find_run_folder` for the target.

    Raises:
        ConfigError: there is none, or it cannot be read.
    """
    path, checkpoints = Path(target), CheckpointFolder(folder / "checkpoints", "")
    if path.is_file():
        content = load_checkpoint(path)
    else:
        path, content = checkpoints.load_best() if _asks_for_best(path) else checkpoints.load_latest()
    check_content(content, path)
    if content["code_version"] != __version__:
        logger.log_warning(
            f"{path}: was written by version {content['code_version']}, this is {__version__}: the resumed training "
            "may differ from an uninterrupted one"
        )
    return SavedRun(folder, path, content)


def last_run(exp_name: str | None = None) -> Path:
    """Return the folder of the run in ``outputs``, of any or one ``exp_name``, that saved last.

    Raises:
        ConfigError: none has a checkpoint.
    """
    saved = _saved_runs(Path("outputs"), exp_name)
    if not saved:
        which = "" if exp_name is None else f" of '{exp_name}'"
        raise ConfigError(f"no run{which} in {Path('outputs').absolute()} has a checkpoint")
    return max(saved, key=saved.__getitem__)


def _saved_runs(outputs: Path, exp_name: str | None) -> dict[Path, float]:
    """Return the runs in a folder, of any or one ``exp_name``, with the time of their last save, s."""
    pattern = "*" if exp_name is None else f"{glob.escape(exp_name)}_" + "[0-9]" * 8 + "_" + "[0-9]" * 6
    return {path.parent.parent: path.stat().st_mtime for path in outputs.glob(f"{pattern}/checkpoints/*.pt")}
