"""Checkpoints of what finished iterations achieved."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from embodichain.agents.rl.checkpoint.folder import CheckpointFolder
from embodichain.agents.rl.distributed import ProcessGroup
from embodichain.agents.rl.distributed.shards import with_all_parts
from embodichain.utils import logger
from embodichain.utils.profiling import section


class Saver:
    """Writes checkpoints of the state after the last finished iteration, of which a copy is kept in memory.

    Args:
        stores: returns the algorithm's large tensors, which are not copied after every iteration.

    Attributes:
        finished: a copy of the trainer's state after the last iteration that was finished, if any.
        saved_iteration: the iteration of the last checkpoint.
        last: its path, if any.
        problem: why the last checkpoint that failed could not be written.
    """

    def __init__(
        self, folder: CheckpointFolder, process_group: ProcessGroup, stores: Callable[[], dict[str, Tensor]]
    ) -> None:
        self.finished: dict[str, Any] | None = None
        self.saved_iteration = 0
        self.last: Path | None = None
        self.problem = ""
        self._best = (0.0, -math.inf)  # success rate and return of the best evaluation
        self._best_checkpoint: str | None = None  # name of the file of that time
        self._folder = folder
        self._process_group = process_group
        self._stores = stores
        self._saving = threading.Lock()  # by the training or, where it hangs, by the thread that watches for signals

    def is_best(self, metrics: Mapping[str, float], step: int) -> bool:
        """Return whether an evaluation, if any, is above all before it, in success or else in return; remember it then.

        Args:
            metrics: of the evaluation; empty where there was none.
        """
        reached = metrics.get("eval/success_rate", math.nan), metrics.get("eval/avg_reward", math.nan)
        if not reached > self._best:  # nor is a return that is no number
            return False
        self._best, self._best_checkpoint = reached, self._folder.path_of(step).name
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint has of the best evaluation."""
        success, reward = self._best
        return {"best_success": success, "best_reward": reward, "best_checkpoint": self._best_checkpoint}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a checkpoint's; old ones have no return, and no name."""
        self._best = state["best_success"], state.get("best_reward", -math.inf)
        self._best_checkpoint = state.get("best_checkpoint")
        self.saved_iteration = state["iteration"]

    @section("save")
    def save(self, content: dict[str, Any], is_together: bool = True) -> Path:
        """Write a trainer's state; return the path.

        Args:
            is_together: all ranks do this; else rank 0 saves by itself all but the others' environments.

        Raises:
            OSError: it cannot be written.
        """
        step = content["global_step"]
        content = with_all_parts(content | {"stores": self._stores()}, self._process_group, is_together)
        with self._saving:
            if self._process_group.is_main:
                with self._process_group.busy():
                    self._folder.save(content, step)
            self.last = self._folder.path_of(step)
            self.saved_iteration = content["iteration"]
        return self.last

    def try_to_save(self, content: dict[str, Any], is_together: bool = True) -> Path | None:
        """Save; where that fails, say so and return None: there may be room again when the next one is due."""
        try:
            return self.save(content, is_together)
        except OSError as error:
            self.problem = str(error)
            logger.log_warning(
                f"the checkpoint of step {content['global_step']} could not be written: {error}. The last one that is "
                f"whole: {self.whole() or 'none'}"
            )
            return None

    def rescue(self, is_together: bool) -> Path | None:
        """Save what finished iterations achieved since the last checkpoint; see ``Trainer.rescue``."""
        if self.finished is None or self.finished["iteration"] <= self.saved_iteration:
            return None
        return self.try_to_save(self.finished, is_together)

    def rescue_alone(self) -> Path | None:
        """Do so from another thread than the training's; where that is about to save, wait for it."""
        with self._saving:
            pass
        return self.rescue(is_together=False)

    def whole(self) -> Path | None:
        """Return the path of the last checkpoint that is on the disk, if any: others may have deleted files."""
        return self.last if self.last is not None and self.last.exists() else self._folder.newest()
