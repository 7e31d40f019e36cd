"""Runs that differ in nothing but their seeds, and what they have reached."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from embodichain.tools.report.run_data import RunData
from embodichain.utils import ConfigError

_OF_NO_CONSEQUENCE = ("seed", "exp_name", "gym_config", "events", "use_wandb", "wandb_project_name", "save_freq")


_LONGEST_NAME = 60

Groups = dict[str, list[RunData]]
"""The runs of each group, by its name."""


def group_runs(runs: Sequence[RunData]) -> tuple[Groups, list[str]]:
    """Put together what was trained alike: runs of one task whose configs differ in seed, name and records alone.

    Returns:
        The groups, by name: that of the experiment where it tells them apart, and else with what differs, or with a
        letter where that is long; and a line for each letter.
    """
    alike: Groups = {}
    for run in runs:
        alike.setdefault(json.dumps(_settings(run), sort_keys=True), []).append(run)
    groups = list(alike.values())
    names = [group[0].name for group in groups]
    if len(set(names)) == len(names):
        return dict(zip(names, groups, strict=True)), []
    told = _differences([group[0] for group in groups])
    full = [f"{name} ({text})" if text else name for name, text in zip(names, told, strict=True)]
    if max(map(len, full)) <= _LONGEST_NAME and len(set(full)) == len(full):
        return dict(zip(full, groups, strict=True)), []
    short = [f"{name} {_letter(i)}" for i, name in enumerate(names)]
    legend = [f"{name}: {text}" for name, text in zip(short, told, strict=True) if text]
    return dict(zip(short, groups, strict=True)), legend


def _differences(runs: Sequence[RunData]) -> list[str]:
    """Return of each run the settings that are not the same in all of its task, with as much of their paths as needed.

    Empty for the only one of its task.
    """
    flat = [_flat(_settings(run)) for run in runs]
    told = []
    for run, own in zip(runs, flat, strict=True):
        alike = [settings for other, settings in zip(runs, flat, strict=True) if task_of(other) == task_of(run)]
        every = dict.fromkeys(key for one in alike for key in one)
        keys = [key for key in every if len({str(one.get(key)) for one in alike}) > 1]
        told.append(", ".join(f"{_ending(key, keys)} {own[key]}" for key in keys if key in own))
    return told


def _ending(key: str, keys: Sequence[str]) -> str:
    """Return the shortest end of a dotted path that no other of the paths has."""
    parts = key.split(".")
    ends = [".".join(parts[i:]) for i in reversed(range(len(parts)))]
    return next((end for end in ends if sum(f".{other}".endswith(f".{end}") for other in keys) == 1), key)


def _letter(index: int) -> str:
    """Return A to Z, then A1 to Z1 and so on."""
    return chr(ord("A") + index % 26) + (str(index // 26) if index >= 26 else "")


def task_of(run: RunData) -> str:
    """Return the name of a run's task."""
    return str(run.config.get("gym_config", {}).get("id", "?"))


def final_score(run: RunData, metric: str) -> float:
    """Return the last value of a metric in a run.

    Raises:
        ConfigError: it was never logged; the message has what was.
    """
    _, values = run.series(metric)
    if not len(values):
        known = ", ".join(name for name in run.rows[-1] if name not in ("step", "wall_time"))
        raise ConfigError(f"{run.folder}: '{metric}' was never logged. There are: {known}")
    return float(values[-1])


def scores_by_task(runs: Sequence[RunData], metric: str) -> dict[str, np.ndarray]:
    """Return the last values of a metric, [R] by task."""
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
