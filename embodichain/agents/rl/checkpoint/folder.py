"""The checkpoints of a run: the latest, the best, and which to delete."""

import json
import re
from pathlib import Path
from typing import Any

from embodichain.agents.rl.checkpoint.file import DamagedCheckpointError, load_checkpoint, save_checkpoint
from embodichain.utils import ConfigError, logger, read_text, write_json

_LATEST, _BEST = "latest.json", "best.json"


class CheckpointFolder:
    """The folder ``checkpoints`` of a run.

    ``latest.json`` and ``best.json`` name a file of the folder (``file``, and its ``step``); unlike links they survive
    copying. Each checkpoint names the best one of its time, too, so that a process that is killed between the two loses
    neither. A checkpoint's name is ``<exp_name>_step_<step>.pt``.

    Args:
        keep_last: number of checkpoints to keep in addition to the best one; None: all.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path, exp_name: str, keep_last: int | None = None) -> None:
        self.path = path
        self._exp_name = exp_name
        self._keep_last = keep_last

    def save(self, content: dict[str, Any], step: int) -> Path:
        """Write a checkpoint as the latest, delete old ones, and return its path.

        Args:
            content: as for ``save_checkpoint``. Its ``best_checkpoint`` names the best one's file so far, which
                may be this one; ``best_success`` is that one's success rate.

        Raises:
            OSError: the file cannot be written; the earlier ones are unchanged.
        """
        path = self.path_of(step)
        save_checkpoint(path, content)
        self.take_up(path, content)
        return path

    def path_of(self, step: int) -> Path:
        """Return the path of the checkpoint of an environment step."""
        return self.path / f"{self._exp_name}_step_{step}.pt"

    def take_up(self, path: Path, content: dict[str, Any]) -> None:
        """Point to a checkpoint as the latest, and to the best one that it names, if that exists; delete others.

        A resume repeats it, so a process may be killed at any point of it.
        """
        self._point(_LATEST, path)
        best = self._best_of(content)
        if best is not None and best != self._pointed(_BEST) and best.exists():
            self._point(_BEST, best, success_rate=content["best_success"])
        if self._keep_last is not None:
            kept = {self._pointed(_BEST), self._best_of(content)}
            files = self.files()
            # Later steps are from before the run was resumed from this one.
            for old in files[: files.index(path) + 1][: -self._keep_last]:
                if old not in kept:
                    old.unlink(missing_ok=True)

    def newest(self) -> Path | None:
        """Return the existing checkpoint with the most steps, if any."""
        return next(reversed(self.files()), None)

    def load_latest(self) -> tuple[Path, dict[str, Any]]:
        """Return the latest readable checkpoint and its content; skip damaged ones with a warning.

        Raises:
            ConfigError: there is none, or it is of another format.
        """
        latest = self._pointed(_LATEST)
        files = self.files()
        if latest is not None and latest in files:
            files = files[: files.index(latest) + 1]
        for path in reversed(files):
            try:
                return path, load_checkpoint(path)
            except DamagedCheckpointError as error:
                then = "" if path == files[0] else "; going back to the checkpoint before it"
                logger.log_warning(f"{error}{then}")
        raise ConfigError(f"{self.path}: there is no checkpoint" + (" that can be read" if files else ""))

    def load_best(self) -> tuple[Path, dict[str, Any]]:
        """Return the checkpoint with the highest success rate, then return, of its evaluation, and its content.

        Raises:
            ConfigError: there was no evaluation yet, or the checkpoint cannot be read.
        """
        path = self._pointed(_BEST)
        if path is None:
            raise ConfigError(f"{self.path}: there is no best checkpoint: nothing was evaluated yet")
        return path, load_checkpoint(path)

    def files(self) -> list[Path]:
        """Return the checkpoints, in the order of their steps."""
        steps = {path: re.search(r"_step_(\d+)\.pt$", path.name) for path in self.path.glob("*.pt")}
        return sorted((path for path, step in steps.items() if step), key=lambda path: int(steps[path][1]))  # type: ignore[index]

    def _best_of(self, content: dict[str, Any]) -> Path | None:
        name = content.get("best_checkpoint")
        return None if name is None else self.path / Path(name).name

    def _point(self, name: str, path: Path, **others: float) -> None:
        step = int(path.stem.rpartition("_")[2])
        write_json(self.path / name, {"file": path.name, "step": step, **others})

    def _pointed(self, name: str) -> Path | None:
        """Return the file in the folder that a pointer names, if there is one."""
        try:
            pointer = json.loads(read_text(self.path / name))
            return self.path / Path(pointer["file"]).name
        except (OSError, ValueError, KeyError, TypeError):
            return None
