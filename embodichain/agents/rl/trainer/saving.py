"""Checkpoints of the state after the last finished iteration."""

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from embodichain.agents.rl.buffer import ReplayBuffer
from embodichain.agents.rl.checkpoint.files import CheckpointFolder, SegmentFolder
from embodichain.agents.rl.distributed import ProcessGroup
from embodichain.utils import logger
from embodichain.utils.profiling import section

# Entries of a checkpoint that each rank has for itself.
OWN = ("generators", "statistics", "collector", "env", "stores")


def own_part(content: dict[str, Any], process_group: ProcessGroup) -> dict[str, Any] | None:
    """Return this rank's own entries of a checkpoint; None, with one warning, if it cannot continue from them."""
    others, world_size = content.get("other_ranks", []), content.get("world_size", 1)
    if process_group.world_size == world_size == 1 + len(others):
        of_main = {name: content[name] for name in OWN if name in content}
        return of_main if process_group.is_main else others[process_group.rank - 1]
    if process_group.is_main:
        why = (
            f"the run had {world_size} processes and now has {process_group.world_size}"
            if process_group.world_size != world_size
            else "a process had failed when the checkpoint was written"
        )
        empty = ", and the replay buffers begin empty" if content.get("stores") else ""
        logger.log_warning(
            f"{why}: policy, optimiser, normaliser and counters continue, the environments begin new episodes{empty}; "
            "the resumed training is not bit-identical"
        )
    return None


class Saver:
    """Writes checkpoints of the state after the last finished iteration, of which a copy is kept in memory.

    Args:
        stores: getter of the algorithm's replay buffers; only their counts are copied after every iteration.
    """

    def __init__(
        self, folder: CheckpointFolder, process_group: ProcessGroup, stores: Callable[[], Mapping[str, ReplayBuffer]]
    ) -> None:
        self.finished: dict[str, Any] | None = None  # a copy of the trainer's state after the last finished iteration
        self.saved_iteration = 0  # of the last checkpoint
        self.last: Path | None = None  # the last checkpoint
        self.problem = ""  # the error of the last failed save
        self._best = (0.0, -math.inf)  # success rate and return of the best evaluation
        self._best_checkpoint: str | None = None  # its file's name
        self._folder = folder
        self._process_group = process_group
        self._stores = stores
        self._segments = SegmentFolder(folder.path, process_group.rank)
        self._saving = threading.Lock()  # by the training or, if it hangs, by the watchdog thread

    def is_best(self, metrics: Mapping[str, float], step: int) -> bool:
        """Record an evaluation, which may be empty, if it is the best by success, then return; return whether it is.

        Where the environment does not know success, the return decides.
        """
        reached = metrics.get("eval/success_rate", 0.0), metrics.get("eval/avg_reward", math.nan)
        if math.isnan(reached[1]) or reached <= self._best:
            return False
        self._best, self._best_checkpoint = reached, self._folder.path_of(step).name
        return True

    def state_dict(self) -> dict[str, Any]:
        """Return the checkpoint's entries about the best evaluation."""
        success, reward = self._best
        return {"best_success": success, "best_reward": reward, "best_checkpoint": self._best_checkpoint}

    def load_state_dict(self, state: Mapping[str, Any], is_comparable: bool = True) -> None:
        """Load a checkpoint's entries; of the best evaluation only if later ones can be compared with it."""
        if is_comparable:
            self._best = state["best_success"], state["best_reward"]
            self._best_checkpoint = state["best_checkpoint"]
        self.saved_iteration = state["iteration"]

    @section("save")
    def save(self, content: dict[str, Any], is_together: bool = True) -> Path:
        """Write a trainer's state; return the path, or raise an OSError. If not together, rank 0 saves alone."""
        step, stores = content["global_step"], dict[str, Any]()
        if replay := self._stores():
            with self._writing(is_together):
                stores = self._segments.save(replay, content["stores"])
        content = content | {"stores": stores}
        own = {name: content[name] for name in OWN if name in content}
        # Complete on rank 0.
        parts = self._process_group.gather_data(own, only_to_main=True) if is_together else [own]
        content |= {"world_size": self._process_group.world_size, "other_ranks": parts[1:]}
        with self._writing(is_together):
            if self._process_group.is_main:
                path = self._folder.save(content, step)
                if stores:
                    self._segments.clean(self._folder.files(), path, content)
                self.last, self.saved_iteration = path, content["iteration"]  # before another thread may rescue
        self.last, self.saved_iteration = self._folder.path_of(step), content["iteration"]
        return self.last

    def load_stores(self, saved: Mapping[str, Any], checkpoints: Path | None = None) -> None:
        """Load the replay buffers that a checkpoint names.

        Args:
            saved: the checkpoint's entry of this rank.
            checkpoints: the checkpoint's folder; None: this run's.
        """
        self._segments.load(self._stores(), saved, checkpoints or self._folder.path)

    @contextmanager
    def _writing(self, is_together: bool) -> Iterator[None]:
        """Write files in the block; an OSError of this rank, or together of any, is raised at its end."""
        problem = ""
        with self._saving:
            try:
                yield
            except OSError as error:
                problem = str(error)
        problems = self._process_group.gather_data(problem) if is_together else [problem]
        if any(problems):
            raise OSError(next(filter(None, problems)))

    def try_to_save(self, content: dict[str, Any], is_together: bool = True) -> Path | None:
        """Save; on failure warn and return None: the disk may have space for the next one."""
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
        """Save the iterations finished since the last checkpoint; None if there are none, or after a warning."""
        if self.finished is None or self.finished["iteration"] <= self.saved_iteration:
            return None
        return self.try_to_save(self.finished, is_together)

    def rescue_alone(self) -> Path | None:
        """Rescue from another thread than the training's, after a save under way."""
        with self._saving:
            pass
        return self.rescue(is_together=False)

    def whole(self) -> Path | None:
        """Return the path of the last checkpoint that exists, if any: the user may have deleted files."""
        return self.last if self.last is not None and self.last.exists() else next(reversed(self._folder.files()), None)
