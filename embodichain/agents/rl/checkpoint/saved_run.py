"""Runs that are on the disk, found by the user's words for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodichain.agents.rl.checkpoint.content import check_content
from embodichain.agents.rl.checkpoint.file import load_checkpoint
from embodichain.agents.rl.checkpoint.folder import CheckpointFolder
from embodichain.agents.rl.checkpoint.resume import last_run
from embodichain.agents.rl.checkpoint.run_access import check_links
from embodichain.utils import ConfigError

__all__ = ["SavedRun", "find_run"]

_WRITTEN = ("export", "rewards", "videos")  # what commands write beside a checkpoint that is not in a run's folder


@dataclass(frozen=True)
class SavedRun:
    """A run's folder and one of its checkpoints.

    Attributes:
        folder: the run's.
        checkpoint: path of the checkpoint.
        content: what is in it.
    """

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
        target: a run's folder, for its latest checkpoint; ``<folder>/best``, for the best one; a checkpoint's file; or
            ``latest`` or ``best``, of the run in ``outputs`` that saved last.

    Raises:
        ConfigError: there is none, it cannot be read, or its folder has links that lead out of it.
    """
    path = Path(target)
    is_best = path.name == "best" and not path.exists()
    if target in ("latest", "best") and not path.exists():
        path = last_run()
    elif is_best:
        path = path.parent
    if (path / "checkpoints").is_dir():
        check_links(path)
        folder = CheckpointFolder(path / "checkpoints", "")
        return _whole(path, *(folder.load_best() if is_best else folder.load_latest()))
    if path.is_file() and path.suffix == ".pt":
        is_in_run = path.parent.name == "checkpoints"
        folder_of_file = path.parent.parent if is_in_run else path.parent
        check_links(folder_of_file, None if is_in_run else _WRITTEN)
        return _whole(folder_of_file, path, load_checkpoint(path))
    raise ConfigError(
        f"{target}: no such run: must be a run's folder, that folder with /best, a checkpoint's file, or 'latest' or "
        "'best' of the run in ./outputs that saved last"
    )


def _whole(folder: Path, checkpoint: Path, content: dict[str, Any]) -> SavedRun:
    check_content(content, checkpoint)
    return SavedRun(folder, checkpoint, content)
