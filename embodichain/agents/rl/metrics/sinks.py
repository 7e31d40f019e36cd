"""Sinks of a run's metrics, such as ``metrics.jsonl`` and TensorBoard, and the log that writes to all of them."""

import io
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from torch.utils.tensorboard import SummaryWriter

from embodichain.agents.rl.config.trainer_cfg import LoggerCfg, TrainerCfg
from embodichain.utils import MISSING, ConfigError, UnavailableError, collected, install_extra, logger, reason_of
from embodichain.utils.files import read_bytes, write_atomically
from embodichain.utils.module_utils import check_arguments, find_admitted
from embodichain.utils.system import open_without_links
from embodichain.utils.utility import leaves_by_path
from embodichain.utils.video import as_gif

_BLOCKS = ("trainer", "policy", "algorithm")
_LEFT_OUT = ("trainer.events.", "trainer.loggers")
_PATIENCE = 15.0  # s that W&B's server has to answer at the beginning


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


class JsonLinesSink(Sink):
    """One JSON object a line: ``step``, ``wall_time`` (s since the start) and the scalars; non-finite ones are null.

    Args:
        wall_time: the last line's in a resumed run's file, s.
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

    def _append(self, text: str) -> None:
        with open(self._path, "a", encoding="utf-8", opener=open_without_links) as file:
            file.write(text)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows: ``step``, ``wall_time`` (s) and the metrics, numbers or None; other lines are skipped."""
    return [row for line in read_bytes(path).splitlines() if (row := _row(line)) is not None]


def _row(line: bytes) -> dict[str, Any] | None:
    """Return the content of a line; None if it is truncated or no row."""
    try:
        row = json.loads(line)
        is_row = row["step"] >= 0 and row["wall_time"] >= 0
        return row if is_row and all(value is None or math.isfinite(value) for value in row.values()) else None
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None


def rewind_metrics(path: Path, step: int) -> tuple[float, int]:
    """Delete the lines after an environment step, and lines that are no rows, from a run's ``metrics.jsonl``.

    Returns:
        The last remaining line's ``wall_time`` (s), and the last step that was there before.
    """
    rows = read_rows(path) if path.exists() else []
    left = [row for row in rows if row["step"] <= step]
    text = "".join(json.dumps(row) + "\n" for row in left)
    write_atomically(path, lambda file: file.write(text.encode()))
    return (left[-1]["wall_time"] if left else 0.0), max([step, *(row["step"] for row in rows)])


class TensorBoardSink(Sink):
    """TensorBoard's event file, with hyperparameters; videos are GIFs, since it shows no other.

    Args:
        resumed_from: the step that a resumed run continues from; readers discard later ones of older files.
        config: run's config.
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

    def write_videos(self, videos: Sequence[str | Path], step: int) -> None:
        """Write the videos of an evaluation at an environment step, as ``videos/<name>``."""
        for path in map(Path, videos):
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


@dataclass(frozen=True)
class LoggedRun:
    """Run that a logger logs."""

    name: str
    """The run folder's name."""
    folder: Path
    """The run's folder."""
    config: Mapping[str, Any]
    """Run's config, plain data with every default."""
    last_step: int | None = None
    """Environment step of the last metrics before a resume, some of which come again; None: a new run."""


class FoundLogger(NamedTuple):
    """An entry of ``trainer.loggers`` whose ``func`` is found; it is called as ``func(run, **params)``."""

    name: str
    func: Callable[..., Any]
    params: Mapping[str, Any]


def find_loggers(cfgs: Sequence[LoggerCfg], allowed_imports: Sequence[str], problems: list[str]) -> list[FoundLogger]:
    """Return the loggers that ``trainer.loggers`` names; errors are added to ``problems``.

    Args:
        allowed_imports: prefixes of modules, imported already, that dotted paths may lead into.
    """
    found = []
    for i, cfg in enumerate(cfgs):
        name: Any = cfg.func
        if name is MISSING:  # reported as such
            continue
        with collected(problems, f"trainer.loggers[{i}]."):
            if "." not in cfg.func:
                raise ConfigError(f"func: must be the dotted path of a function or class, got '{cfg.func}'")
            func: Callable[..., Any] = find_admitted(cfg.func, [], allowed_imports, "func")
            with collected(problems, f"trainer.loggers[{i}].params: "):
                check_arguments(func, 1, cfg.params)
                found.append(FoundLogger(cfg.func, func, cfg.params))
    return found


def begin_loggers(log: RunLog, cfg: TrainerCfg, found: Sequence[FoundLogger], run: LoggedRun) -> None:
    """Add a run's loggers to its log; one that cannot begin is a warning."""
    for each in found:
        log.begin(each.name, partial(each.func, run, **each.params))
    if cfg.use_wandb:
        log.begin(WandbLogger.name, partial(WandbLogger, run, cfg.wandb_project_name))


class WandbLogger:
    """Weights & Biases; offline without an account or a connection. A run that the program has begun itself is used."""

    name = "Weights & Biases"

    def __init__(self, run: LoggedRun, project: str) -> None:
        try:
            import wandb  # noqa: PLC0415 (an optional extra)

            self._make_video: Any = wandb.Video
        except (ImportError, AttributeError) as error:  # a folder "wandb" of offline logs can be imported, too
            raise UnavailableError(f"wandb cannot be imported ({error}): {install_extra('wandb')}") from error
        self._is_ours = wandb.run is None
        self._last_step = -1 if run.last_step is None else run.last_step  # W&B cannot take steps back
        self._run: Any = wandb.run if wandb.run is not None else self._begin(wandb, run, project)
        # W&B drops out-of-order steps of its own axis.
        self._run.define_metric("global_step")
        self._run.define_metric("*", step_metric="global_step")

    def _begin(self, wandb: Any, run: LoggedRun, project: str) -> Any:
        arguments = {"project": project, "name": run.name, "id": run.name, "config": run.config}
        arguments |= {"resume": "allow", "dir": str(run.folder)}
        begun, why = None, "no account here ('wandb login')"
        if os.environ.get("WANDB_API_KEY") or wandb.api.api_key:
            try:
                begun = wandb.init(**arguments, mode="online", settings=wandb.Settings(init_timeout=_PATIENCE))
            except wandb.errors.Error as error:
                why = str(error).partition("\n")[0]
                wandb.teardown()  # the attempt would keep the run's name for itself
        if begun is None:
            logger.log_warning(f"{self.name}: {why}: logging offline; send it with 'wandb sync {run.folder}/wandb/*'")
            begun = wandb.init(**arguments, mode="offline")
        if run.last_step is not None:  # the last step online may be ahead of our own files
            self._last_step = max(self._last_step, begun.summary.get("global_step") or 0)
        return begun

    def write(self, scalars: Mapping[str, Any], step: int) -> None:
        """Log scalars; repeated ones of a resumed run are left out."""
        if step > self._last_step:
            self._run.log({**scalars, "global_step": step})

    def write_video(self, name: str, path: Path, step: int) -> None:
        """Log a video."""
        self.write({name: self._make_video(str(path), format="mp4")}, step)

    def close(self) -> None:
        """Finish the run, unless it is the program's own."""
        if self._is_ours:
            self._run.finish()
