"""Sinks of a run's metrics, videos and hyperparameters, and the log that writes to all of them."""

from __future__ import annotations

import io
import json
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from PIL import Image
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from torch.utils.tensorboard import SummaryWriter

from embodichain.agents.rl.metrics.hyperparameters import hyperparameters
from embodichain.utils import logger
from embodichain.utils.errors import reason_of
from embodichain.utils.system import open_without_links
from embodichain.utils.video import as_gif

CLOSING_SECONDS = 30.0
"""Time that a sink in a thread has to finish at the end of a run, s."""
_MOST_WAITING = 1000  # entries in the queue of a sink in a thread


class Logger(Protocol):
    """Destination of scalars; it may have ``write_video(name, path, step)``, too, for mp4 files."""

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Write scalars by name at an environment step."""

    def close(self) -> None:
        """Finish."""


class Sink(Logger, Protocol):
    """A logger with a name for messages."""

    name: str


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
        """Write scalars."""
        for tag, value in scalars.items():
            self._writer.add_scalar(tag, value, step)

    def close(self) -> None:
        """Do nothing."""


class JsonLinesSink:
    """One JSON object a line: ``step``, ``wall_time`` (s since the start) and the scalars; non-finite ones are null.

    Args:
        wall_time: of the last line of a resumed run's file, s.
    """

    name = "metrics.jsonl"

    def __init__(self, path: Path, wall_time: float = 0.0) -> None:
        self._path = path
        self._start = time.monotonic() - wall_time
        self._append("")

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Append a line."""
        finite = {name: value if math.isfinite(value) else None for name, value in scalars.items()}
        line = {"step": step, "wall_time": round(time.monotonic() - self._start, 3), **finite}
        self._append(json.dumps(line) + "\n")

    def close(self) -> None:
        """Do nothing: the file is closed after every line."""

    def _append(self, text: str) -> None:
        with open(self._path, "a", encoding="utf-8", opener=open_without_links) as file:
            file.write(text)


class TensorBoardSink:
    """TensorBoard's event file, with hyperparameters; videos are GIFs, since it shows no other.

    Args:
        resumed_from: the step that a resumed run continues from; readers discard later ones of older files.
        config: of the run.
    """

    name = "TensorBoard"

    def __init__(self, folder: Path, resumed_from: int | None, config: Mapping[str, Any]) -> None:
        self._writer = SummaryWriter(folder, purge_step=None if resumed_from is None else resumed_from + 1)
        self._writer._get_file_writer().add_summary(hparams_pb(hyperparameters(config)))

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Write scalars; a killed run loses none."""
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def write_video(self, name: str, path: Path, step: int) -> None:
        """Write a small copy of a video."""
        gif = as_gif(path)
        with Image.open(io.BytesIO(gif)) as opened:
            width, height = opened.size
        image = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=gif)
        self._writer._get_file_writer().add_summary(Summary(value=[Summary.Value(tag=name, image=image)]), step)
        self._writer.flush()

    def close(self) -> None:
        """Finish the file."""
        self._writer.close()


class ThreadedSink:
    """A sink that begins and writes in a thread: a server that does not answer holds nothing up.

    If it fails, it warns once and takes nothing more.
    """

    def __init__(self, name: str, begin: Callable[[], Logger]) -> None:
        self.name = name
        self._todo: queue.Queue[Callable[[Logger], object] | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._run, args=[begin], name=name, daemon=True)
        self._thread.start()

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Put scalars into the queue."""
        self._put(lambda sink: sink.write(scalars, step))

    def write_video(self, name: str, path: Path, step: int) -> None:
        """Put a video into the queue, for a sink that takes videos."""
        self._put(lambda sink: _write_video(sink, name, path, step))

    def close(self) -> None:
        """Wait until the queue is empty and the sink is closed; a TimeoutError after ``CLOSING_SECONDS``."""
        self._put(None)
        self._thread.join(CLOSING_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError(f"not finished within {CLOSING_SECONDS:g} s")

    def _put(self, task: Callable[[Logger], object] | None) -> None:
        if self._thread.is_alive():  # else it has failed and warned
            try:
                self._todo.put_nowait(task)
            except queue.Full:
                raise TimeoutError(f"no answer while {_MOST_WAITING} entries were waiting") from None

    def _run(self, begin: Callable[[], Logger]) -> None:
        try:
            sink = begin()
            while (task := self._todo.get()) is not None:
                task(sink)
            sink.close()
        except Exception as error:  # noqa: BLE001 (other libraries; a log is not worth a training)
            _warn(self.name, error)


class RunLog:
    """Writes scalars to every sink, and keeps the last of each. A sink that fails is removed with a warning."""

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self._sinks = list(sinks)
        self.last: dict[str, float] = {}

    def add(self, sink: Sink) -> None:
        """Add a sink."""
        self._sinks.append(sink)

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Write scalars at an environment step."""
        self.last |= scalars
        self._each(lambda sink: sink.write(scalars, step))

    def write_videos(self, videos: Sequence[Path], step: int) -> None:
        """Write the videos of an evaluation at an environment step, as ``videos/<name>``."""
        for path in videos:
            name = f"videos/{path.stem.removesuffix(f'_step_{step}')}"
            for sink in self._sinks:
                try:
                    _write_video(sink, name, path, step)
                except Exception as error:  # noqa: BLE001 (as above)
                    logger.log_warning(f"{sink.name} did not take the video {path}: {_reason(error)}")

    def close(self) -> None:
        """Close and remove all sinks."""
        self._each(lambda sink: sink.close())
        self._sinks = []

    def _each(self, use: Callable[[Sink], object]) -> None:
        for sink in list(self._sinks):
            try:
                use(sink)
            except Exception as error:  # noqa: BLE001 (as above)
                self._sinks.remove(sink)
                _warn(sink.name, error)


def _write_video(sink: Logger, name: str, path: Path, step: int) -> None:
    if (write := getattr(sink, "write_video", None)) is not None:
        write(name, path, step)


def _warn(name: str, error: Exception) -> None:
    logger.log_warning(f"{name} gets no more metrics: {_reason(error)}. The training and its other logs continue")


def _reason(error: Exception) -> str:
    return reason_of(error).partition("\n")[0] or type(error).__name__
