"""A run's folder, read back. Legend: I iterations."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NotRequired

import numpy as np
from pydantic import ConfigDict, Field, PositiveInt, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from embodichain.agents.rl.checkpoint.run_access import check_links
from embodichain.agents.rl.metrics.metrics_file import read_rows
from embodichain.utils import ConfigError, logger
from embodichain.utils.files import read_text
from embodichain.utils.utility import check_plain

_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
_Share = Annotated[float, Field(ge=0.0, le=1.0)]


class _Trainer(TypedDict):
    exp_name: str
    seed: NotRequired[int | None]
    iterations: NotRequired[int]
    num_eval_episodes: NotRequired[PositiveInt]
    import_modules: NotRequired[list[str]]


class _Algorithm(TypedDict):
    name: str
    cfg: NotRequired[dict[str, Any] | None]


class _Policy(TypedDict):
    name: str


class _GymConfig(TypedDict):
    id: NotRequired[str]
    kwargs: NotRequired[dict[str, Any]]
    env: NotRequired[dict[str, Any]]


class _Config(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]

    trainer: _Trainer
    policy: _Policy
    algorithm: _Algorithm
    gym_config: NotRequired[_GymConfig]


class _Summary(TypedDict, total=False):
    __pydantic_config__ = _STRICT  # type: ignore[misc]

    success_rate: _Share | None
    success_interval_95: Annotated[list[_Share], Field(min_length=2, max_length=2)] | None
    avg_reward: float | None
    episodes: int
    metrics: dict[str, float | None]
    train_seconds: float
    wall_seconds: float
    env_steps: int
    peak_memory_mb: float | None
    run_folder: str
    checkpoint: str
    video: str | None
    learning_curve: str | None


_CONFIG, _SUMMARY = TypeAdapter(_Config), TypeAdapter(_Summary)


class NoMetricsError(ConfigError):
    """A run's folder has no line of metrics yet."""


@dataclass(frozen=True)
class RunData:
    """The files of a run's folder.

    Attributes:
        rows: rows of ``metrics.jsonl``, one for each iteration.
        summary: content of ``summary.json``; empty if the training is unfinished.
        machine: content of ``machine.json``; empty if missing.
    """

    folder: Path
    config: dict[str, Any]
    rows: list[dict[str, Any]]
    summary: dict[str, Any]
    machine: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return str(self.config["trainer"]["exp_name"])

    def names(self, prefix: str) -> list[str]:
        """Return the names of the metrics with a prefix, in logged order."""
        return list(dict.fromkeys(name for row in self.rows for name in row if name.startswith(prefix)))

    def series(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return steps and values of a metric, float64, at the iterations that logged it (I or fewer)."""
        points = [(row["step"], row[name]) for row in self.rows if row.get(name) is not None]
        steps, values = zip(*points, strict=True) if points else ((), ())
        return np.array(steps, dtype=float), np.array(values, dtype=float)


def read_run(folder: Path) -> RunData:
    """Read a run's folder.

    Raises:
        ConfigError: the folder is not one, or has links that lead out of it.
        NoMetricsError: the run has no line of metrics yet.
    """
    check_links(folder)
    try:
        config = json.loads(read_text(folder / "config.json"))
        check_plain(config)
        _CONFIG.validate_python(config)
        rows = read_rows(folder / "metrics.jsonl")
    except ValidationError as error:
        raise ConfigError(f"{folder}: is not the folder of a run: config.json: {_first_problem(error)}") from None
    except FileNotFoundError as error:
        name = Path(error.filename).name
        raise ConfigError(f"{folder}: is not the folder of a run: it has no {name}") from None
    except OSError as error:
        problem = f"config.json or metrics.jsonl cannot be read: {error.strerror}"
        raise ConfigError(f"{folder}: is not the folder of a run: {problem}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{folder}: is not the folder of a run: config.json or metrics.jsonl: {error}") from error
    if not rows:
        raise NoMetricsError(f"{folder}: no iteration has been logged yet")
    return RunData(folder, config, rows, read_summary(folder / "summary.json"), _optional(folder / "machine.json"))


def read_summary(path: Path) -> dict[str, Any]:
    """Return a run's ``summary.json``; empty if missing, or with a warning if invalid."""
    summary = _optional(path)
    try:
        _SUMMARY.validate_python(summary)
    except ValidationError as error:
        logger.log_warning(f"{path}: is not a run's summary and is ignored: {_first_problem(error)}")
        return {}
    return summary


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    return ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))


def _optional(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
