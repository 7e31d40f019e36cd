"""The checkpoints of a run: which is the latest, which the best, and which may go."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from embodichain.agents.rl.utils.checkpoint import (
    DamagedCheckpointError,
    load_checkpoint,
    save_checkpoint,
    write_json,
)
from embodichain.utils import ConfigError, logger
from embodichain.utils.files import read_text

__all__ = ["CheckpointFolder"]

_LATEST, _BEST = "latest.json", "best.json"


class CheckpointFolder:
    """The folder ``checkpoints`` of a run.

    ``latest.json`` and ``best.json`` name a file beside them (``file``, and its ``step``); unlike links they survive
    copying. A checkpoint's name ends in ``_step_<step>.pt``.
    """

    def __init__(self, path: Path, exp_name: str, keep_last: int | None = None) -> None:
        """Set up.

        Args:
            path: the folder; it is there.
            exp_name: begins the names.
            keep_last: how many to keep beside the best one; None: all.
        """
        self.path = path
        self._exp_name = exp_name
        self._keep_last = keep_last

    def save(self, content: dict[str, Any], step: int, success_rate: float | None = None) -> Path:
        """Write a checkpoint, which is the latest then, and delete what need not be kept.

        Args:
            content: as for ``save_checkpoint``.
            step: environment steps so far.
            success_rate: given for the best one so far.

        Returns:
            Its path.

        Raises:
            OSError: it cannot be written; what was there before is as it was.
        """
        path = self.path_of(step)
        save_checkpoint(path, content)
        self.point_latest(path)
        if success_rate is not None:
            self._point(_BEST, path, success_rate=success_rate)
        if self._keep_last is not None:
            best = self._pointed(_BEST)
            files = self._files()
            # Those of later steps are from before the run was taken back to this one.
            for old in files[: files.index(path) + 1][: -self._keep_last]:
                if old != best:
                    old.unlink()
        return path

    def path_of(self, step: int) -> Path:
        """Return where the checkpoint after so many environment steps goes."""
        return self.path / f"{self._exp_name}_step_{step}.pt"

    def point_latest(self, path: Path) -> None:
        """Make a checkpoint of this folder the latest."""
        self._point(_LATEST, path)

    def remove_unfinished(self) -> None:
        """Delete what a process that was killed left half written."""
        for file in self.path.glob("*.tmp"):
            file.unlink()

    def load_latest(self) -> tuple[Path, dict[str, Any]]:
        """Return the latest checkpoint that can be read, and its content; for others passed over there is a warning.

        Raises:
            ConfigError: there is none, or it is of another format.
        """
        latest = self._pointed(_LATEST)
        files = self._files()
        if latest is not None and latest in files:
            files = files[: files.index(latest) + 1]
        for path in reversed(files):
            try:
                return path, load_checkpoint(path)
            except DamagedCheckpointError as error:
                logger.log_warning(f"{error}; going back to the checkpoint before it")
        raise ConfigError(f"{self.path}: there is no checkpoint" + (" that can be read" if files else ""))

    def load_best(self) -> tuple[Path, dict[str, Any]]:
        """Return the checkpoint whose evaluation succeeded most often, or else had the highest return, and its content.

        Raises:
            ConfigError: there was no evaluation yet, or the checkpoint cannot be read.
        """
        path = self._pointed(_BEST)
        if path is None:
            raise ConfigError(f"{self.path}: there is no best checkpoint: nothing was evaluated yet")
        return path, load_checkpoint(path)

    def _files(self) -> list[Path]:
        """Return the checkpoints by their steps."""
        steps = {path: re.search(r"_step_(\d+)\.pt$", path.name) for path in self.path.glob("*.pt")}
        return sorted((path for path, step in steps.items() if step), key=lambda path: int(steps[path][1]))  # type: ignore[index]

    def _point(self, name: str, path: Path, **others: float) -> None:
        step = int(path.stem.rpartition("_")[2])
        write_json(self.path / name, {"file": path.name, "step": step, **others})

    def _pointed(self, name: str) -> Path | None:
        """Return the file that a pointer names, if there is one; it never leads out of the folder."""
        try:
            pointer = json.loads(read_text(self.path / name))
            return self.path / Path(pointer["file"]).name
        except (OSError, ValueError, KeyError, TypeError):
            return None
