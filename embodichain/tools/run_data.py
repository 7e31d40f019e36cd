"""A run's folder, read back: its config, its metrics and its summary.

Legend: I iterations.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.agents.rl.checkpoint.saved_run import check_links
from embodichain.agents.rl.metrics.sinks import read_rows
from embodichain.agents.rl.run_data import read_object
from embodichain.utils import ConfigError


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
    """Read a run's folder; a NoMetricsError if the run has no line of metrics yet."""
    check_links(folder)
    for name in ("config.json", "metrics.jsonl"):
        if not (folder / name).exists():
            raise ConfigError(f"{folder}: is not the folder of a run: it has no {name}")
    rows = read_rows(folder / "metrics.jsonl")
    if not rows:
        raise NoMetricsError(f"{folder}: no iteration has been logged yet")
    config, summary, machine = (read_object(folder / f"{name}.json") for name in ("config", "summary", "machine"))
    return RunData(folder, config, rows, summary, machine)
