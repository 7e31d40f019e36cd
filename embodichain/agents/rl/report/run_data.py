"""A run's folder, read back. Legend: I iterations."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.utils import ConfigError

__all__ = ["RunData", "read_run"]


@dataclass(frozen=True)
class RunData:
    """What a run's folder says.

    Attributes:
        folder: the run's.
        config: its resolved config.
        rows: of ``metrics.jsonl``, one for each iteration.
        summary: of ``summary.json``; empty where the training did not come to its end.
        machine: of ``machine.json``; empty likewise.
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
        """Return the names of the figures that begin so, in their order."""
        return list(dict.fromkeys(name for row in self.rows for name in row if name.startswith(prefix)))

    def series(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return steps and values of a figure where it has been logged, float64 [I] or fewer."""
        points = [(row["step"], row[name]) for row in self.rows if row.get(name) is not None]
        steps, values = zip(*points, strict=True) if points else ((), ())
        return np.array(steps, dtype=float), np.array(values, dtype=float)


def read_run(folder: Path) -> RunData:
    """Read a run's folder.

    Raises:
        ConfigError: it is not one, or has no line of figures yet.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        trainer = config["trainer"]
        trainer["exp_name"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{folder}: is not the folder of a run: config.json or metrics.jsonl: {error}") from error
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue  # cut off when the machine stopped
    if not rows:
        raise ConfigError(f"{folder}: no iteration has been logged yet")
    return RunData(folder, config, rows, _optional(folder / "summary.json"), _optional(folder / "machine.json"))


def _optional(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
