"""Compares trainings, read from their folders, over their seeds. Legend: R runs of a group."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.tools.compare.groups import Groups, group_runs, scores_by_task, task_of
from embodichain.tools.compare.statistics import Scores, bootstrap_interval, compare_groups, interquartile_mean
from embodichain.tools.report.run_data import read_run


def compare_runs(arguments: Sequence[str], metric: str) -> tuple[dict[str, Any], Groups]:
    """Compare the last values of a metric.

    Args:
        arguments: runs' folders, grouped by their configs, or groups: ``NAME=RUN,RUN``.
        metric: of ``metrics.jsonl``.

    Returns:
        The result as plain data (``metric``, ``groups``, ``comparisons``, ``notes``), and the runs compared, by group.

    Raises:
        ConfigError: a folder is not a run's, or has no such metric.
    """
    groups, legend = _read_groups(arguments)
    groups, without = _with_metric(groups, metric)
    scores = {name: scores_by_task(runs, metric) for name, runs in groups.items()}
    pairs = [(a, b) for a, b in itertools.combinations(scores, 2) if scores[a].keys() == scores[b].keys()]
    result = {
        "metric": metric,
        "groups": [_row(name, by_task) for name, by_task in scores.items()],
        "comparisons": [asdict(compare_groups(a, b, scores)) for a, b in pairs],
        "notes": [*legend, *without, *_notes(groups)],
    }
    return result, groups


def _row(name: str, by_task: Scores) -> dict[str, Any]:
    values = np.concatenate(list(by_task.values()))
    return {
        "group": name,
        "tasks": sorted(by_task),
        "runs": len(values),
        "interquartile_mean": float(interquartile_mean(values)),
        "interval_95": bootstrap_interval([by_task], lambda drawn: interquartile_mean(drawn[0])),
        "mean": float(values.mean()),
        "lowest": float(values.min()),
        "highest": float(values.max()),
    }


def _read_groups(arguments: Sequence[str]) -> tuple[Groups, list[str]]:
    """Return the groups by name, and lines that say what is behind short names."""
    named, plain = {}, []
    for argument in arguments:
        name, equals, folders = argument.partition("=")
        if equals:
            named[name] = [read_run(Path(folder)) for folder in folders.split(",")]
        else:
            plain.append(read_run(Path(argument)))
    groups, legend = group_runs(plain)
    return named | groups, legend


def _with_metric(groups: Groups, metric: str) -> tuple[Groups, list[str]]:
    """Return the groups without the runs that never logged a metric, unless none did, and notes on these."""
    missing = [run.folder.name for runs in groups.values() for run in runs if not run.series(metric)[1].size]
    having = {name: [run for run in runs if run.series(metric)[1].size] for name, runs in groups.items()}
    if not missing or not any(having.values()):
        return groups, []
    note = f"left out, since '{metric}' was never logged there: {', '.join(missing)}"
    return {name: runs for name, runs in having.items() if runs}, [note]


def _notes(groups: Groups) -> list[str]:
    """Return what should be known before the numbers are believed."""
    notes = []
    for name, runs in groups.items():
        seeds = [(task_of(run), run.config["trainer"].get("seed")) for run in runs]
        if len(set(seeds)) < len(seeds):
            notes.append(f"{name}: several runs of one seed are no independent runs")
        if len(runs) == 1:
            notes.append(f"{name}: one run has no interval; train with other seeds, too: trainer.seed=2")
        if unfinished := [run.folder.name for run in runs if not run.summary]:
            notes.append(f"{name}: not finished: {', '.join(unfinished)}")
    rewards = {
        (task_of(run), json.dumps(run.config.get("gym_config", {}).get("env", {}).get("rewards"), sort_keys=True))
        for runs in groups.values()
        for run in runs
    }
    if len(rewards) > len({task for task, _ in rewards}):
        notes.append("the runs have different rewards: their returns cannot be compared, their success can")
    return notes
