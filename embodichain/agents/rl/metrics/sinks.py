"""Destinations of a run's metrics, videos and hyperparameters: TensorBoard, ``metrics.jsonl``, Weights & Biases."""

from __future__ import annotations

import json
import math
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from embodichain.agents.rl.metrics.hyperparameters import hyperparameters
from embodichain.utils import ConfigError, logger
from embodichain.utils.extras import install_extra
from embodichain.utils.system import open_without_links
from embodichain.utils.video import as_gif


class Sink(Protocol):
    """A destination of scalars. If it raises, the run warns with its ``name`` and continues without it."""

    name: str

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Write scalars by name at a step."""

    def close(self) -> None:
        """Finish."""


@runtime_checkable
class TakesVideos(Protocol):
    """A sink that takes videos, too."""

    name: str

    def write_video(self, name: str, path: Path, step: int) -> None:
        """Write a finished mp4 file, as ``name``, at a step."""


class ScalarWriter(Protocol):
    """Such as ``torch.utils.tensorboard.SummaryWriter``."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Write one scalar."""


class WriterSink:
    """The user's own writer, which the user closes."""

    name = "the Trainer's writer"

    def __init__(self, writer: ScalarWriter) -> None:
        self._writer = writer

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Take scalars."""
        for tag, value in scalars.items():
            self._writer.add_scalar(tag, value, step)

    def close(self) -> None:
        """Do nothing."""


class JsonLinesSink:
    """One JSON object a line: ``step``, ``wall_time`` (s since the start) and the scalars; non-finite ones are null."""

    name = "metrics.jsonl"

    def __init__(self, path: Path, wall_time: float = 0.0) -> None:
        """Begin the file, or continue it: ``wall_time`` is that of its last line, s."""
        self._file = open(path, "a", encoding="utf-8", opener=open_without_links)  # noqa: SIM115 (closed by close)
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


class TensorBoardSink:
    """A TensorBoard event file, written without a thread: errors are raised at once, and a killed run loses nothing.

    Readers take it after those that are in the folder, which is created. Hyperparameters are on the page *HParams*;
    videos are GIFs among the images, since TensorBoard shows no other.

    Args:
        resumed_from: the step that a resumed run continues from; readers discard later ones of older files.
        config: of the run.
    """

    name = "TensorBoard"

    def __init__(self, folder: Path, resumed_from: int | None, config: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # Files are read in the order of their names, and a run may be resumed in the second in which it was killed.
        older = (re.match(r"events\.out\.tfevents\.(\d+)\.", file.name) for file in folder.iterdir())
        second = max([int(time.time()), *(int(name[1]) + 1 for name in older if name)])
        path = folder / f"events.out.tfevents.{second:010d}.{socket.gethostname()}.{os.getpid()}.0"
        self._file = path.open("xb")
        self._records = RecordWriter(self._file)
        self._add(file_version="brain.Event:2")
        if resumed_from is not None:
            self._add(step=resumed_from + 1, session_log=SessionLog(status=SessionLog.START))
        self._add(summary=hparams_pb(hyperparameters(config)))
        self._file.flush()

    def write(self, scalars: Mapping[str, float], step: int) -> None:
        """Write scalars; an OSError if the file cannot be written, or was deleted."""
        self._write([Summary.Value(tag=name, simple_value=value) for name, value in scalars.items()], step)

    def write_video(self, name: str, path: Path, step: int) -> None:
        """Write a small copy of a video; an OSError as for :meth:`write`, or if it cannot be read."""
        gif, width, height = as_gif(path)
        image = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=gif)
        self._write([Summary.Value(tag=name, image=image)], step)

    def close(self) -> None:
        """Finish the file."""
        self._file.close()

    def _write(self, values: Sequence[object], step: int) -> None:
        self._add(step=step, summary=Summary(value=values))
        self._file.flush()
        check_there(self._file.fileno())

    def _add(self, **content: object) -> None:
        self._records.write(Event(wall_time=time.time(), **content).SerializeToString())


def check_there(descriptor: int) -> None:
    """Raise an OSError if an open file was deleted: its content is lost when it is closed."""
    if os.fstat(descriptor).st_nlink == 0:
        raise OSError("the file was deleted")


def import_wandb() -> Any:
    """Return the package wandb.

    Raises:
        ConfigError: the extra ``wandb`` is not installed.
    """
    try:
        import wandb  # noqa: PLC0415 (an optional extra)

        wandb.Video  # noqa: B018 (a folder "wandb" of offline logs can be imported, too)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"trainer.use_wandb: the package wandb is not installed: {install_extra('wandb')}, "
            "or add trainer.use_wandb=false to the command line"
        ) from error
    return wandb


class WandbSink:
    """Weights & Biases; offline without an account or a connection. A run that the program has begun itself is used.

    Args:
        last_step: the last step logged before a resume: W&B cannot take steps back, so repeated ones are left out.

    Raises:
        ConfigError: the extra ``wandb`` is not installed.
    """

    name = "Weights & Biases"

    def __init__(
        self, project: str, name: str, folder: Path, config: dict[str, Any], last_step: int | None = None
    ) -> None:
        wandb = import_wandb()
        self._make_video: Any = wandb.Video
        self._is_ours = wandb.run is None
        if wandb.run is not None:
            self._run, self._last_step = wandb.run, last_step
            self._use_own_step_axis()
            return
        has_account = bool(os.environ.get("WANDB_API_KEY") or wandb.api.api_key)
        if not has_account:
            logger.log_info(f"no W&B account here: logging offline into {folder}/wandb; send it with 'wandb sync'")
        arguments: Any = {"project": project, "name": name, "id": name, "config": config}
        arguments |= {"resume": "allow", "dir": str(folder)}
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
        # The last step online may be ahead of our own files.
        reached = self._run.summary.get("global_step")
        known = [step for step in (last_step, reached) if step is not None]
        self._last_step = max(known) if last_step is not None else None
        self._use_own_step_axis()

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Take scalars."""
        if self._last_step is None or step > self._last_step:
            self._run.log({**scalars, "global_step": step})

    def write_video(self, name: str, path: Path, step: int) -> None:
        """Take a video."""
        if self._last_step is None or step > self._last_step:
            self._run.log({name: self._make_video(str(path), format="mp4"), "global_step": step})

    def close(self) -> None:
        """Finish the run, unless it is the program's own."""
        if self._is_ours:
            self._run.finish()

    def _use_own_step_axis(self) -> None:
        """Define our step axis: W&B drops out-of-order steps of its own."""
        self._run.define_metric("global_step")
        self._run.define_metric("*", step_metric="global_step")


class RunLog:
    """Writes scalars to every sink, and keeps the last of each. A sink that fails is removed."""

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self._sinks = list(sinks)
        self.last: dict[str, float] = {}

    def add(self, sink: Sink) -> None:
        """Add a sink."""
        self._sinks.append(sink)

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Write scalars at an environment step."""
        self.last |= scalars
        for sink in list(self._sinks):
            try:
                sink.write(scalars, step)
            except Exception as error:  # noqa: BLE001 (other libraries; a log is not worth a training)
                self._sinks.remove(sink)
                logger.log_warning(
                    f"{sink.name} has failed at step {step}: {_reason(error)}. It gets no more metrics; the training "
                    "continues"
                )
                with suppress(Exception):
                    sink.close()

    def write_videos(self, videos: Sequence[Path], step: int) -> None:
        """Write the videos of an evaluation at an environment step, as ``videos/<name>``; a failure is a warning."""
        for path in videos:
            name = f"videos/{path.stem.removesuffix(f'_step_{step}')}"
            for sink in (sink for sink in self._sinks if isinstance(sink, TakesVideos)):
                try:
                    sink.write_video(name, path, step)
                except Exception as error:  # noqa: BLE001 (as above)
                    logger.log_warning(f"{sink.name} did not take the video {path}: {_reason(error)}")

    def close(self) -> None:
        """Close and remove all sinks."""
        sinks, self._sinks = self._sinks, []
        for sink in sinks:
            try:
                sink.close()
            except Exception as error:  # noqa: BLE001 (as above)
                logger.log_warning(f"{sink.name} could not be finished: {_reason(error)}")


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
