"""The checkpoints of a run: which is the latest, which the best, and which may go."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from embodichain.agents.rl.checkpoint.file import DamagedCheckpointError, load_checkpoint, save_checkpoint
from embodichain.utils import ConfigError, logger
from embodichain.utils.files import read_text, write_json

_LATEST, _BEST = "latest.json", "best.json"


class CheckpointFolder:
    """The folder ``checkpoints`` of a run.

    ``latest.json`` and ``best.json`` name a file beside them (``file``, and its ``step``); unlike links they survive
    copying. Each checkpoint names the best one of its time, too, so that a process that is killed between the two loses
    neither. A checkpoint's name ends in ``_step_<step>.pt``.

    Attributes:
        path: the folder.
        on_made_again: called when somebody had removed the folder and :meth:`save` has made it again.
    """

    def __init__(self, path: Path, exp_name: str, keep_last: int | None = None) -> None:
        """Set up.

        Args:
            exp_name: begins the names.
            keep_last: how many to keep beside the best one; None: all.
        """
        self.path = path
        self.on_made_again: Callable[[], object] = lambda: None
        self._exp_name = exp_name
        self._keep_last = keep_last

    def save(self, content: dict[str, Any], step: int) -> Path:
        """Write a checkpoint, which is the latest then, and delete what need not be kept.

        Args:
            content: as for ``save_checkpoint``. Its ``best_checkpoint`` names the file of the best one so far, which
                may be this one; ``best_success`` is that one's success rate.

        Returns:
            Its path.

        Raises:
            OSError: it cannot be written; what was there before is as it was.
        """
        if not self.path.is_dir():
            self.path.mkdir(parents=True)
            logger.log_warning(f"{self.path}: the folder was removed, with what was in it; it is made again")
            self.on_made_again()
        path = self.path_of(step)
        save_checkpoint(path, content)
        self.take_up(path, content)
        return path

    def path_of(self, step: int) -> Path:
        """Return where the checkpoint after so many environment steps goes."""
        return self.path / f"{self._exp_name}_step_{step}.pt"

    def take_up(self, path: Path, content: dict[str, Any]) -> None:
        """Make a checkpoint the latest, and the one that it names the best; delete what need not be kept.

        A process that is killed in it leaves the rest to the resume.

        Args:
            content: what is in it. Where the best one that it names is not there, the pointer stays as it is.
        """
        self._point(_LATEST, path)
        best = self._best_of(content)
        if best is not None and best != self._pointed(_BEST) and best.exists():
            self._point(_BEST, best, success_rate=content["best_success"])
        if self._keep_last is not None:
            kept = {self._pointed(_BEST), self._best_of(content)}
            files = self._files()
            # Those of later steps are from before the run was taken back to this one.
            for old in files[: files.index(path) + 1][: -self._keep_last]:
                if old not in kept:
                    old.unlink(missing_ok=True)

    def newest(self) -> Path | None:
        """Return the checkpoint that is there with the most steps, if any."""
        return next(reversed(self._files()), None)

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

    def _best_of(self, content: dict[str, Any]) -> Path | None:
        name = content.get("best_checkpoint")  # checkpoints from before it was kept have none
        return None if name is None else self.path / Path(name).name

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
