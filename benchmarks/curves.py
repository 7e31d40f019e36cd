"""Learning curves of several seeds: trainings in processes of their own, and their plot. A point has ``step``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Point = dict[str, float]
NAMES = {"ours": "this library", "sb3": "Stable-Baselines3"}
"""Of the learners, in plots."""


def print_point(point: Point) -> None:
    """Print a point of a curve, in the form that ``run_child`` reads: ``step`` comes first."""
    print(json.dumps(point), flush=True)


class EvaluationSink:
    """A sink of the log that prints the evaluations as points.

    Args:
        names: of the log's scalars, by the point's key.
    """

    name = "learning curve"

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Print the point of an evaluation."""
        if set(self._names.values()) <= set(scalars):
            print_point({"step": step} | {key: round(scalars[name], 4) for key, name in self._names.items()})

    def close(self) -> None:
        """Close nothing."""


def run_child(module: str, arguments: Sequence[str]) -> list[Point]:
    """Run ``python -m module arguments`` with one thread, and return the points that it prints.

    Raises:
        SystemExit: it failed; the message has its output.
    """
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", module, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith('{"step"')]


def plot_runs(axis: Any, runs: Sequence[Sequence[Point]], key: str, label: str) -> None:
    """Plot the median and the range of a point's ``key`` over the steps of several runs."""
    steps = [point["step"] for point in runs[0]]
    values = np.array([[point[key] for point in points] for points in runs])
    (line,) = axis.plot(steps, np.median(values, axis=0), label=f"{label}, {len(runs)} seed{'s' * (len(runs) > 1)}")
    axis.fill_between(steps, values.min(axis=0), values.max(axis=0), alpha=0.2, color=line.get_color())
