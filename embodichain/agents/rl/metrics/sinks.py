"""Where a run's figures go: TensorBoard, ``metrics.jsonl``, Weights & Biases, the terminal, and a plot."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from embodichain.agents.rl.metrics.event_file import EventFile, check_there
from embodichain.agents.rl.metrics.panel import LivePanel
from embodichain.agents.rl.metrics.slow_run import SlowRunNotice
from embodichain.utils import ConfigError, logger
from embodichain.utils.files import without_links

__all__ = ["ProgressDisplay", "RunLog", "ScalarWriter", "Sink", "WandbSink", "WriterSink", "make_progress"]


class Sink(Protocol):
    """Takes scalars by name at a step. Whatever it raises, the run goes on without it.

    Attributes:
        name: what the user knows it by.
    """

    name: str

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Take them."""

    def close(self) -> None:
        """Finish."""


class TensorBoardSink:
    """TensorBoard's event files."""

    name = "TensorBoard"

    def __init__(self, folder: Path, resumed_from: int | None = None) -> None:
        """Begin a file.

        Args:
            folder: its folder.
            resumed_from: the step that a resumed run goes on from; what older files have beyond it counts no more.
        """
        self._file = EventFile(folder, None if resumed_from is None else resumed_from + 1)

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Take scalars."""
        self._file.write(scalars, step)

    def close(self) -> None:
        """Finish the files."""
        self._file.close()


class ScalarWriter(Protocol):
    """Such as ``torch.utils.tensorboard.SummaryWriter``."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Take one scalar."""


class WriterSink:
    """A writer of somebody else's, which is theirs to close."""

    name = "the Trainer's writer"

    def __init__(self, writer: ScalarWriter) -> None:
        self._writer = writer

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Take scalars."""
        for tag, value in scalars.items():
            self._writer.add_scalar(tag, value, step)

    def close(self) -> None:
        """Nothing is to be done."""


class JsonLinesSink:
    """One JSON object a line: ``step``, ``wall_time`` (s since the start) and the scalars; not-a-number is null."""

    name = "metrics.jsonl"

    def __init__(self, path: Path, wall_time: float = 0.0) -> None:
        """Begin the file, or go on with it.

        Args:
            path: the file.
            wall_time: that of the last line in it, s.
        """
        self._file = open(path, "a", encoding="utf-8", opener=without_links)  # noqa: SIM115 (closed by close)
        self._start = time.monotonic() - wall_time

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Take scalars."""
        finite = {name: value if math.isfinite(value) else None for name, value in scalars.items()}
        line = {"step": step, "wall_time": round(time.monotonic() - self._start, 3), **finite}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        check_there(self._file.fileno())

    def close(self) -> None:
        """Finish the file."""
        self._file.close()


class WandbSink:
    """Weights & Biases; offline where there is no account, or no way to it."""

    name = "Weights & Biases"

    def __init__(
        self, project: str, name: str, folder: Path, config: dict[str, Any], last_step: int | None = None
    ) -> None:
        """Begin a run, or go on with it; one that the program has begun itself is used as it is.

        Args:
            project: it is in this project.
            name: its name.
            folder: where files of its own go.
            config: shown with it.
            last_step: the last step that it was given before, if it is resumed: what is given again is left out, since
                nothing can be taken back.

        Raises:
            ConfigError: the extra ``wandb`` is not installed.
        """
        try:
            import wandb  # noqa: PLC0415 (an optional extra)
        except ImportError as error:
            raise ConfigError(
                "trainer.use_wandb: the package wandb is not installed: pip install 'embodichain-mujoco[wandb]', "
                "or add trainer.use_wandb=false to the command line"
            ) from error
        self._is_ours = wandb.run is None
        if wandb.run is not None:
            self._run, self._last_step = wandb.run, last_step
            self._use_own_step_axis()
            return
        has_account = bool(os.environ.get("WANDB_API_KEY") or wandb.api.api_key)
        if not has_account:
            logger.log_info(f"no W&B account here: logging offline into {folder}/wandb; send it with 'wandb sync'")
        arguments: Any = {
            "project": project,
            "name": name,
            "id": name,
            "resume": "allow",
            "dir": str(folder),
            "config": config,
        }
        try:
            self._run = wandb.init(**arguments, mode="online" if has_account else "offline")
        except wandb.errors.Error as error:
            reason = str(error).partition("\n")[0]
            logger.log_warning(
                f"Weights & Biases cannot be reached: {reason}: logging offline into {folder}/wandb; send it with "
                "'wandb sync'"
            )
            wandb.teardown()  # the attempt would keep the run's name for itself
            self._run = wandb.init(**arguments, mode="offline")
        # What it has got itself is known where it is resumed online; it may be a step ahead of our own files.
        reached = self._run.summary.get("global_step")
        known = [step for step in (last_step, reached) if step is not None]
        self._last_step = max(known) if last_step is not None else None
        self._use_own_step_axis()

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Take scalars."""
        if self._last_step is None or step > self._last_step:
            self._run.log({**scalars, "global_step": step})

    def close(self) -> None:
        """Finish the run, unless it is the program's own."""
        if self._is_ours:
            self._run.finish()

    def _use_own_step_axis(self) -> None:
        """W&B drops what comes out of the order of its own."""
        self._run.define_metric("global_step")
        self._run.define_metric("*", step_metric="global_step")


class RunLog:
    """Hands scalars to every sink, and keeps the last of each. A sink that fails is left out from then on."""

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self._sinks = list(sinks)
        self.last: dict[str, float] = {}

    def add(self, sink: Sink) -> None:
        """Let a sink have what comes from now on."""
        self._sinks.append(sink)

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Write scalars at an environment step."""
        self.last |= scalars
        for sink in list(self._sinks):
            try:
                sink.write(scalars, step)
            except Exception as error:  # noqa: BLE001 (other people's libraries; a log is not worth a training)
                self._sinks.remove(sink)
                logger.log_warning(
                    f"{sink.name} has failed at step {step}: {_reason(error)}. It gets no more figures; the training "
                    "goes on"
                )
                with suppress(Exception):
                    sink.close()

    def close(self) -> None:
        """Finish all sinks, and let go of them."""
        sinks, self._sinks = self._sinks, []
        for sink in sinks:
            try:
                sink.close()
            except Exception as error:  # noqa: BLE001 (as above)
                logger.log_warning(f"{sink.name} could not be finished: {_reason(error)}")


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


class ProgressDisplay(Protocol):
    """Shows how far the training is."""

    def update(self, iteration: int, scalars: dict[str, float]) -> None:
        """Show the state after an iteration."""

    def evaluating(self, num_episodes: int) -> None:
        """Show that an evaluation has begun."""

    def close(self) -> None:
        """Leave the terminal as it should be."""


def make_progress(
    iterations: int, done: int = 0, is_shown: bool = True, config: Mapping[str, Any] | None = None
) -> ProgressDisplay:
    """Return a live panel where the output is a terminal, else plain lines now and then.

    Args:
        iterations: of the whole training.
        done: how many of them were made before.
        is_shown: False where another process shows it.
        config: the run's, resolved, for the notice of a run that takes hours.
    """
    if not is_shown:
        return NoProgress()
    console = Console(stderr=True)
    shown = LivePanel(console, iterations, done) if console.is_terminal else PlainProgress(iterations, done)
    return NoticingProgress(shown, SlowRunNotice(iterations, done, config or {}))


def _summary(scalars: dict[str, float]) -> str:
    shown = {
        "charts/SPS": ("steps/s", "{:,.0f}"),
        "charts/episode_reward_avg_100": ("return", "{:.2f}"),
        "charts/episode_length_avg_100": ("length", "{:.0f}"),
        "charts/success_rate_avg_100": ("success", "{:.0%}"),
        "eval/success_rate": ("eval", "{:.1%}"),
    }
    return "  ".join(f"{label} {form.format(scalars[n])}" for n, (label, form) in shown.items() if n in scalars)


class NoProgress:
    """Nothing."""

    def update(self, iteration: int, scalars: dict[str, float]) -> None:
        """Show nothing."""

    def evaluating(self, num_episodes: int) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing is to be done."""


class NoticingProgress:
    """What another display shows, and the notice of a run that takes hours."""

    def __init__(self, shown: ProgressDisplay, notice: SlowRunNotice) -> None:
        self.shown = shown
        self._notice = notice

    def update(self, iteration: int, scalars: dict[str, float]) -> None:
        """Show the state after an iteration."""
        self.shown.update(iteration, scalars)
        self._notice.update(iteration)

    def evaluating(self, num_episodes: int) -> None:
        """Show that an evaluation has begun."""
        self.shown.evaluating(num_episodes)

    def close(self) -> None:
        """Leave the terminal as it should be."""
        self.shown.close()


class PlainProgress:
    """A line every five seconds, and for the last iteration."""

    def __init__(self, iterations: int, done: int = 0) -> None:
        self._iterations = iterations
        self._done = done
        self._start = time.monotonic()
        self._next = 0.0

    def update(self, iteration: int, scalars: dict[str, float]) -> None:
        """Show the state after an iteration."""
        elapsed = time.monotonic() - self._start
        if elapsed < self._next and iteration < self._iterations:
            return
        self._next = elapsed + 5.0
        left = elapsed / (iteration - self._done) * (self._iterations - iteration)
        print(f"iteration {iteration}/{self._iterations}  ETA {left:.0f} s  {_summary(scalars)}", flush=True)

    def evaluating(self, num_episodes: int) -> None:
        """Say so."""
        print(f"evaluating {num_episodes} episodes", flush=True)

    def close(self) -> None:
        """Nothing is to be done."""
