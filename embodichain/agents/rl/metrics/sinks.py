"""Sinks of a run's metrics, videos and hyperparameters, and the log that writes to all of them."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from torch.utils.tensorboard import SummaryWriter

from embodichain.utils import logger
from embodichain.utils.errors import reason_of
from embodichain.utils.utility import leaves_by_path
from embodichain.utils.video import as_gif

_BLOCKS = ("trainer", "policy", "algorithm")
_LEFT_OUT = ("trainer.events.", "trainer.loggers")


class Sink:
    """Destination of scalars; one that takes mp4 files has ``write_video(name, path, step)``, too."""

    name: str
    """Name in messages; a user's sink without one goes by its class's."""

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Write scalars by name at an environment step."""
        raise NotImplementedError

    def close(self) -> None:
        """Finish."""


class WriterSink(Sink):
    """The user's own writer, a ``SummaryWriter`` or the like, which the user closes."""

    name = "the Trainer's writer"

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Write scalars."""
        for tag, value in scalars.items():
            self._writer.add_scalar(tag, value, step)


class TensorBoardSink(Sink):
    """TensorBoard's event file, with hyperparameters; videos are GIFs, since it shows no other.

    Args:
        resumed_from: the step that a resumed run continues from; readers discard later ones of older files.
        config: of the run.
    """

    name = "TensorBoard"

    def __init__(self, folder: Path, resumed_from: int | None, config: Mapping[str, Any]) -> None:
        self._writer = SummaryWriter(folder, purge_step=None if resumed_from is None else resumed_from + 1)
        self._writer._get_file_writer().add_summary(hparams_pb(_hyperparameters(config)))

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


def _hyperparameters(config: Mapping[str, Any]) -> dict[str, bool | float | str]:
    """Return the values of trainer, policy and algorithm by their dotted paths, and the task as ``env_id``.

    Lists and null are JSON texts.
    """
    leaves = leaves_by_path({block: config[block] for block in _BLOCKS if block in config})
    found = {
        path: value if isinstance(value, bool | int | float | str) else json.dumps(value)
        for path, value in leaves.items()
        if not path.startswith(_LEFT_OUT)
    }
    env_id = config.get("gym_config", {}).get("id")
    return found if env_id is None else {"env_id": str(env_id), **found}


class RunLog:
    """Writes scalars to every sink, and keeps the last of each. A sink that fails is removed with a warning."""

    def __init__(self, sinks: Sequence[Any] = ()) -> None:
        self._sinks = list(sinks)
        self.last: dict[str, float] = {}

    def add(self, sink: Sink) -> None:
        """Add a sink."""
        self._sinks.append(sink)

    def begin(self, name: str, make: Callable[[], Any]) -> None:
        """Add a sink that another library makes; a warning where it cannot."""
        try:
            self._sinks.append(make())
        except Exception as error:  # noqa: BLE001 (other libraries; a log is not worth a training)
            _warn(name, error)

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Write scalars at an environment step."""
        self.last |= scalars
        self._each(lambda sink: sink.write(scalars, step))

    def write_videos(self, videos: Sequence[Path], step: int) -> None:
        """Write the videos of an evaluation at an environment step, as ``videos/<name>``."""
        for path in videos:
            name = f"videos/{path.stem.removesuffix(f'_step_{step}')}"
            for sink in [sink for sink in self._sinks if hasattr(sink, "write_video")]:
                try:
                    sink.write_video(name, path, step)
                except Exception as error:  # noqa: BLE001 (as above)
                    logger.log_warning(f"{_name(sink)} did not take the video {path}: {_reason(error)}")

    def close(self) -> None:
        """Close and remove all sinks."""
        self._each(lambda sink: sink.close())
        self._sinks = []

    def _each(self, use: Callable[[Any], object]) -> None:
        for sink in list(self._sinks):
            try:
                use(sink)
            except Exception as error:  # noqa: BLE001 (as above)
                self._sinks.remove(sink)
                _warn(_name(sink), error)


def _name(sink: Any) -> str:
    return getattr(sink, "name", type(sink).__name__)


def _warn(name: str, error: Exception) -> None:
    logger.log_warning(f"{name} gets no more metrics: {_reason(error)}. The training and its other logs continue")


def _reason(error: Exception) -> str:
    return reason_of(error).partition("\n")[0] or type(error).__name__
