"""A run's folder, read back. Legend: I iterations."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.agents.rl.checkpoint.saved_run import check_links
from embodichain.agents.rl.metrics.metrics_file import read_rows
from embodichain.utils import ConfigError, read_text


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
    for name in ("config.json", "metrics.jsonl"):
        if not (folder / name).exists():
            raise ConfigError(f"{folder}: is not the folder of a run: it has no {name}")
    rows = read_rows(folder / "metrics.jsonl")
    if not rows:
        raise NoMetricsError(f"{folder}: no iteration has been logged yet")
    config, summary, machine = (read_object(folder / f"{name}.json") for name in ("config", "summary", "machine"))
    return RunData(folder, config, rows, summary, machine)


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file of a run; empty if it is missing or damaged."""
    try:
        content = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
