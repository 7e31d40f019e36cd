"""``embodichain compare``. Legend: R runs of a group."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.commands.arguments import add_json, output_file
from embodichain.tools.report.charts import Series, line_chart
from embodichain.tools.report.groups import group_runs, scores_by_task, task_of
from embodichain.tools.report.page import table
from embodichain.tools.report.run_data import RunData, read_run
from embodichain.tools.report.statistics import bootstrap_interval, compare_groups, interquartile_mean
from embodichain.tools.report.style import STYLE
from embodichain.utils import ConfigError

EXAMPLES = (
    "outputs/cart_pole_*",
    "ppo=outputs/a_1,outputs/a_2 grpo=outputs/b_1,outputs/b_2 --out comparison.html",
    "outputs/push_cube_* --metric eval/avg_length --json",
)
_CURVES = {"eval/success_rate": "charts/success_rate_avg_100", "eval/avg_reward": "charts/episode_reward_avg_100"}
_POINTS = 200  # of a curve


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="runs' folders; those whose configs differ in the seed alone are a group. Or groups: NAME=RUN,RUN,...",
    )
    parser.add_argument(
        "--metric",
        default="eval/success_rate",
        help="a figure of metrics.jsonl, of which the last value counts (default: %(default)s)",
    )
    parser.add_argument("--out", type=output_file, metavar="FILE", help="write a page with a plot and the tables")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Compare and print; return 0.

    Raises:
        ConfigError: a folder is not a run's, or has no such figure; or the page cannot be written.
    """
    groups, legend = _read_groups(args.runs)
    groups, without = _with_figure(groups, args.metric)
    scores = {name: scores_by_task(runs, args.metric) for name, runs in groups.items()}
    rows = []
    for name, by_task in scores.items():
        values = np.concatenate(list(by_task.values()))
        rows.append(
            {
                "group": name,
                "tasks": sorted(by_task),
                "runs": len(values),
                "interquartile_mean": float(interquartile_mean(values)),
                "interval_95": bootstrap_interval([by_task], lambda drawn: interquartile_mean(drawn[0])),
                "mean": float(values.mean()),
                "lowest": float(values.min()),
                "highest": float(values.max()),
            }
        )
    pairs = [(a, b) for a, b in itertools.combinations(scores, 2) if scores[a].keys() == scores[b].keys()]
    comparisons = [asdict(compare_groups(a, b, scores)) for a, b in pairs]
    result: dict[str, Any] = {
        "metric": args.metric,
        "groups": rows,
        "comparisons": comparisons,
        "notes": [*legend, *without, *_notes(groups)],
    }
    if args.out is not None:
        try:
            args.out.write_text(_page(result, groups), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"--out {args.out}: cannot be written: {error.strerror}") from error
    print(json.dumps(result, indent=2) if args.json else _text(result))
    return 0


def _read_groups(arguments: Sequence[str]) -> tuple[dict[str, list[RunData]], list[str]]:
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


def _with_figure(groups: dict[str, list[RunData]], metric: str) -> tuple[dict[str, list[RunData]], list[str]]:
    """Return the groups without the runs that never logged a figure, unless none did, and notes on these."""
    missing = [run.folder.name for runs in groups.values() for run in runs if not run.series(metric)[1].size]
    having = {name: [run for run in runs if run.series(metric)[1].size] for name, runs in groups.items()}
    if not missing or not any(having.values()):
        return groups, []
    note = f"left out, since '{metric}' was never logged there: {', '.join(missing)}"
    return {name: runs for name, runs in having.items() if runs}, [note]


def _notes(groups: dict[str, list[RunData]]) -> list[str]:
    """Return what should be known before the figures are believed."""
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


def _cells(row: dict[str, Any]) -> list[str]:
    low, high = row["interval_95"]
    interval = f"{low:.4g} to {high:.4g}" if row["runs"] > 1 else "-"
    numbers = [f"{row[key]:.4g}" for key in ("mean", "lowest", "highest")]
    return [row["group"], str(row["runs"]), f"{row['interquartile_mean']:.4g}", interval, *numbers]


_HEADINGS = ("group", "runs", "IQM", "95 % interval", "mean", "lowest", "highest")


def _verdicts(result: dict[str, Any]) -> list[str]:
    lines = []
    for one in result["comparisons"]:
        low, high = one["interval_95"]
        figures = f"{one['difference']:+.4g} (95 % interval {low:+.4g} to {high:+.4g})"
        lines.append(f"{one['first']} - {one['second']}: {figures}: {one['verdict']}")
    return lines + [f"note: {note}" for note in result["notes"]]


def _text(result: dict[str, Any]) -> str:
    rows = [_HEADINGS, *(_cells(row) for row in result["groups"])]
    widths = [max(len(row[i]) for row in rows) + 2 for i in range(len(_HEADINGS))]
    lines = ["".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([f"{result['metric']}, last value", "", *lines, "", *_verdicts(result)]).rstrip()


def _page(result: dict[str, Any], groups: dict[str, list[RunData]]) -> str:
    metric = result["metric"]
    charts = [line_chart(metric, _curves(groups, metric), is_share=metric.endswith("success_rate"))]
    if metric in _CURVES:
        charts.append(line_chart("in training", _curves(groups, _CURVES[metric]), is_share="success" in metric))
    cards = "".join(f'<div class="card">{chart}</div>' for chart in charts)
    verdicts = "".join(f"<p>{escape(line)}</p>" for line in _verdicts(result))
    about = "interquartile mean over the runs; bands reach from the lowest run to the highest."
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Comparison</title><style>{STYLE}</style>'
        f"</head><body><main><h1>Comparison</h1><p>{escape(metric)}: {about}</p>"
        f'<div class="cards">{cards}</div><h2>Last value</h2>'
        f"{table(_HEADINGS, [_cells(row) for row in result['groups']])}<h2>Differences</h2>{verdicts}"
        "</main></body></html>\n"
    )


def _curves(groups: dict[str, list[RunData]], metric: str) -> list[Series]:
    """Return each group's interquartile mean over steps, as far as all of its runs go."""
    lines = []
    for name, runs in groups.items():
        found = [run.series(metric) for run in runs]
        if any(not len(steps) for steps, _ in found):
            continue
        first, last = max(steps[0] for steps, _ in found), min(steps[-1] for steps, _ in found)
        at = np.linspace(first, last, _POINTS) if last > first else np.array([last])
        values = np.stack([np.interp(at, steps, series) for steps, series in found])
        middle = interquartile_mean(values.T).tolist()
        lines.append(Series(name, at.tolist(), middle, values.min(axis=0).tolist(), values.max(axis=0).tolist()))
    return lines
