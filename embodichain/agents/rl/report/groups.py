"""Runs that differ in nothing but their seeds, and what they have reached."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from embodichain.agents.rl.report.run_data import RunData
from embodichain.utils import ConfigError

__all__ = ["final_score", "group_runs", "scores_by_task", "task_of"]

_OF_NO_CONSEQUENCE = ("seed", "exp_name", "gym_config", "events", "use_wandb", "wandb_project_name", "save_freq")


def group_runs(runs: Sequence[RunData]) -> dict[str, list[RunData]]:
    """Put together what was trained alike: runs of one task whose configs differ in seed, name and records alone.

    Returns:
        The groups, by name: that of the experiment where it tells them apart, and else with what differs.
    """
    alike: dict[str, list[RunData]] = {}
    for run in runs:
        alike.setdefault(json.dumps(_settings(run), sort_keys=True), []).append(run)
    groups = list(alike.values())
    names = [group[0].name for group in groups]
    if len(set(names)) < len(names):
        flat = [_flat(_settings(group[0])) for group in groups]
        keys = [
            key for key in dict.fromkeys(k for one in flat for k in one) if len({str(o.get(key)) for o in flat}) > 1
        ]
        told = [", ".join(f"{key.rpartition('.')[2]} {one.get(key)}" for key in keys) for one in flat]
        names = [f"{name} ({text})" for name, text in zip(names, told, strict=True)]
    return dict(zip(names, groups, strict=True))


def task_of(run: RunData) -> str:
    """Return the name of a run's task."""
    return str(run.config.get("gym_config", {}).get("id", "?"))


def final_score(run: RunData, metric: str) -> float:
    """Return the last value of a figure in a run.

    Raises:
        ConfigError: it was never logged; the message has what was.
    """
    _, values = run.series(metric)
    if not len(values):
        known = ", ".join(name for name in run.rows[-1] if name not in ("step", "wall_time"))
        raise ConfigError(f"{run.folder}: '{metric}' was never logged. There are: {known}")
    return float(values[-1])


def scores_by_task(runs: Sequence[RunData], metric: str) -> dict[str, np.ndarray]:
    """Return the last values of a figure, [R] by task."""
    found: dict[str, list[float]] = {}
    for run in runs:
        found.setdefault(task_of(run), []).append(final_score(run, metric))
    return {task: np.array(values) for task, values in found.items()}


def _settings(run: RunData) -> dict[str, Any]:
    trainer = {k: v for k, v in run.config["trainer"].items() if k not in _OF_NO_CONSEQUENCE}
    env = run.config.get("gym_config", {})
    return {
        "trainer": trainer,
        "policy": run.config["policy"],
        "algorithm": run.config["algorithm"],
        "gym_config": {k: v for k, v in env.items() if k != "$schema"},
    }


def _flat(node: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for key, value in node.items():
        rows |= _flat(value, f"{place}{key}.") if isinstance(value, Mapping) else {f"{place}{key}": value}
    return rows
