"""Compares trainings, read from their folders, over their seeds. Legend: R runs of a group."""

import argparse
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.agents.rl.checkpoint.saved_run import find_run_folder
from embodichain.commands.arguments import add_json, format_columns, output_file_with, print_result
from embodichain.ext.report.page import Section, Series, line_chart, render_page
from embodichain.tools.run_data import NoMetricsError, RunData, read_run
from embodichain.utils import ConfigError, utility

# Of runs in one group. MayChange says another thing: a run may be continued with more iterations or other evaluations,
# and then is not comparable. Events count, but for recorders.
_IGNORED = ("seed", "exp_name", "gym_config", "events", "loggers", "use_wandb", "wandb_project_name", "save_freq")
_LONGEST_NAME = 60

Groups = dict[str, list[RunData]]
"""The runs of each group, by its name."""
Scores = Mapping[str, np.ndarray]
"""Scores [R] by task."""
HEADINGS = ("group", "runs", "IQM", "95 % interval", "mean", "lowest", "highest")
IN_TRAINING = {"eval/success_rate": "charts/success_rate_avg_100", "eval/avg_reward": "charts/episode_reward_avg_100"}
"""The metrics of the training's own episodes, by its evaluations' metrics."""
_POINTS = 200  # points of a curve


def compare_runs(arguments: Sequence[str], metric: str) -> tuple[dict[str, Any], Groups]:
    """Compare the last values of a metric.

    Args:
        arguments: runs as ``find_run_folder`` takes them, grouped by their configs, or groups: ``NAME=RUN,RUN``.
        metric: metric of ``metrics.jsonl``.

    Returns:
        The result as plain data (``metric``, ``groups``, ``comparisons``, ``notes``), and the runs compared, by group.
    """
    groups, legend = _read_groups(arguments)
    groups, without = _with_metric(groups, metric)
    scores = {name: scores_by_task(runs, metric) for name, runs in groups.items()}
    all_pairs = list(itertools.combinations(scores, 2))
    pairs = [(a, b) for a, b in all_pairs if scores[a].keys() == scores[b].keys()]
    apart = [f"{a} and {b}: not compared: they are not of the same tasks" for a, b in all_pairs if (a, b) not in pairs]
    result = {
        "metric": metric,
        "groups": [_row(name, by_task) for name, by_task in scores.items()],
        "comparisons": [compare_groups(a, b, scores) for a, b in pairs],
        "notes": [*legend, *without, *apart, *_notes(groups)],
    }
    return result, groups


def _row(name: str, by_task: Scores) -> dict[str, Any]:
    values, interval = np.concatenate(list(by_task.values())), None
    if all(len(scores) > 1 for scores in by_task.values()):  # a single run does not vary
        interval = bootstrap_interval([by_task], lambda drawn: interquartile_mean(drawn[0]))
    return {
        "group": name,
        "tasks": sorted(by_task),
        "runs": len(values),
        "interquartile_mean": float(interquartile_mean(values)),
        "interval_95": interval,
        "mean": float(values.mean()),
        "lowest": float(values.min()),
        "highest": float(values.max()),
    }


def _read_groups(arguments: Sequence[str]) -> tuple[Groups, list[str]]:
    """Return the groups by name, and the lines that explain each short name and the omitted runs.

    A run that has logged nothing yet is left out, unless all are such runs.
    """
    problems: dict[str, NoMetricsError] = {}
    read_for: set[tuple[str, Path]] = set()

    def read(run: str, group: str) -> list[RunData]:
        folder = find_run_folder(run)
        if (group, folder.resolve()) in read_for:
            raise ConfigError(f"{run}: is named twice; each run counts once")
        read_for.add((group, folder.resolve()))
        try:
            return [read_run(folder)]
        except NoMetricsError as error:
            problems[folder.name] = error
            return []

    named: Groups = {}
    plain: list[RunData] = []
    for argument in arguments:
        name, equals, runs = argument.partition("=")
        if equals and not (name and all(runs.split(","))):
            raise ConfigError(f"'{argument}': must be a run, or a group of the form NAME=RUN,RUN,...")
        if equals:
            named.setdefault(name, []).extend(found for run in runs.split(",") for found in read(run, name))
        else:
            plain += read(argument, "")
    groups, lines = group_runs(plain)
    if taken := next((name for name in named if name in groups), None):
        raise ConfigError(f"'{taken}=...': the runs that are in no named group are one of that name, too: take another")
    groups = {name: group for name, group in (named | groups).items() if group}
    if not groups:
        raise next(iter(problems.values()))
    if problems:
        lines.append(f"left out, since no iteration has been logged there yet: {', '.join(problems)}")
    return groups, lines


def _with_metric(groups: Groups, metric: str) -> tuple[Groups, list[str]]:
    """Return the groups without runs that never logged the metric (unless none did), and a note on these runs."""
    missing = [run.folder.name for runs in groups.values() for run in runs if not run.series(metric)[1].size]
    having = {name: [run for run in runs if run.series(metric)[1].size] for name, runs in groups.items()}
    if not missing or not any(having.values()):
        return groups, []
    note = f"left out, since '{metric}' was never logged there: {', '.join(missing)}"
    return {name: runs for name, runs in having.items() if runs}, [note]


def _notes(groups: Groups) -> list[str]:
    """Return caveats of the comparison, one line each."""
    notes = []
    for name, runs in groups.items():
        seeds = [(task_of(run), run.config["trainer"].get("seed")) for run in runs]
        if len(set(seeds)) < len(seeds):
            notes.append(f"{name}: several runs of one seed are no independent runs")
        if min(Counter(map(task_of, runs)).values()) == 1:
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


def group_runs(runs: Sequence[RunData]) -> tuple[Groups, list[str]]:
    """Group runs of one task that differ only in seed, name and recording.

    Returns:
        The groups by name: the experiment's name if unique, else with the differing settings, or with a number if these
        are long; and a line that explains each number.
    """
    alike: Groups = {}
    for run in runs:
        alike.setdefault(json.dumps(_settings(run), sort_keys=True), []).append(run)
    groups = list(alike.values())
    names = [group[0].name for group in groups]
    if len(set(names)) == len(names):
        return dict(zip(names, groups, strict=True)), []
    texts = _differences([group[0] for group in groups])
    full = [f"{name} ({text})" if text else name for name, text in zip(names, texts, strict=True)]
    if max(map(len, full)) <= _LONGEST_NAME and len(set(full)) == len(full):
        return dict(zip(full, groups, strict=True)), []
    short = [f"{name} {i}" for i, name in enumerate(names, 1)]
    legend = [f"{name}: {text}" for name, text in zip(short, texts, strict=True) if text]
    return dict(zip(short, groups, strict=True)), legend


def _differences(runs: Sequence[RunData]) -> list[str]:
    """Return the settings of each run that differ within its task."""
    flat = [utility.leaves_by_path(_settings(run)) for run in runs]
    texts = []
    for run, own in zip(runs, flat, strict=True):
        alike = [settings for other, settings in zip(runs, flat, strict=True) if task_of(other) == task_of(run)]
        every = dict.fromkeys(key for one in alike for key in one)
        keys = [key for key in every if len({str(one.get(key)) for one in alike}) > 1]
        texts.append(", ".join(f"{key.rpartition('.')[2]} {own[key]}" for key in keys if key in own))
    return texts


def task_of(run: RunData) -> str:
    """Return the name of a run's task."""
    return str(run.config.get("gym_config", {}).get("id", "?"))


def final_score(run: RunData, metric: str) -> float:
    """Return the last value of a metric in a run, NaN where it was not finite; ConfigError where there is none."""
    _, values = run.series(metric)
    if not len(values):
        raise ConfigError(f"{run.folder}: {never_logged(metric, run.rows[-1])}")
    is_lost = next(row[metric] for row in reversed(run.rows) if metric in row) is None
    return math.nan if is_lost else float(values[-1])


def never_logged(metric: str, logged: Iterable[str]) -> str:
    """Return the message for a metric that was not logged."""
    known = [name for name in logged if name not in ("step", "wall_time")]
    success, returns = IN_TRAINING.items()
    taken = next((name for name in returns if name in known), None)
    if taken and metric in success and not any(name in known for name in success):
        return f"'{metric}' was never logged: the task has no success. Take --metric {taken}"
    return f"'{metric}' was never logged. There are: {', '.join(known)}"


def scores_by_task(runs: Sequence[RunData], metric: str) -> dict[str, np.ndarray]:
    """Return the last values of a metric, [R] by task."""
    found: dict[str, list[float]] = {}
    for run in runs:
        if math.isnan(score := final_score(run, metric)):
            raise ConfigError(f"{run.folder}: the last value of '{metric}' is not finite")
        found.setdefault(task_of(run), []).append(score)
    return {task: np.array(values) for task, values in found.items()}


def _settings(run: RunData) -> dict[str, Any]:
    trainer = {k: v for k, v in run.config["trainer"].items() if k not in _IGNORED}
    env = {k: v for k, v in run.config.get("gym_config", {}).items() if k != "$schema"}
    if "env" in env:
        kept = {k: v for k, v in env["env"].items() if k != "dataset"}
        env["env"] = {k: _without_videos(v) if k == "events" else v for k, v in kept.items()}
    events = run.config["trainer"].get("events", {})
    return {
        "trainer": trainer,
        "events": {phase: _without_videos(events.get(phase, {})) for phase in ("train", "eval")},
        "processes": run.machine.get("processes", 1),
        "policy": run.config["policy"],
        "algorithm": run.config["algorithm"],
        "gym_config": env,
    }


def _without_videos(events: Mapping[str, Any]) -> dict[str, Any]:
    """Return events without the recorders of videos."""
    return {name: event for name, event in events.items() if "record_camera_data" not in str(event.get("func"))}


def format_comparison(result: dict[str, Any]) -> str:
    """Return the result of ``compare_runs`` for the screen."""
    table = format_columns([HEADINGS, *(cells(row) for row in result["groups"])])
    return "\n".join([f"{result['metric']}, last value", "", table, "", *verdicts(result)]).rstrip()


def cells(row: dict[str, Any]) -> list[str]:
    """Return a group's row of the table below ``HEADINGS``."""
    ends = row["interval_95"]
    interval = "-" if ends is None else f"{ends[0]:.4g} to {ends[1]:.4g}"
    numbers = [f"{row[key]:.4g}" for key in ("mean", "lowest", "highest")]
    return [row["group"], str(row["runs"]), f"{row['interquartile_mean']:.4g}", interval, *numbers]


def verdicts(result: dict[str, Any]) -> list[str]:
    """Return a line for each comparison and each note."""
    lines = []
    for one in result["comparisons"]:
        ends = one["interval_95"]
        interval = "" if ends is None else f" (95 % interval {ends[0]:+.4g} to {ends[1]:+.4g})"
        values = f"{one['difference']:+.4g}{interval}"
        lines.append(f"{one['first']} - {one['second']}: {values}: {one['verdict']}")
    return lines + [f"note: {note}" for note in result["notes"]]


def make_page(result: dict[str, Any], groups: Groups) -> str:
    """Return the page of a ``compare_runs`` result."""
    metric = result["metric"]
    charts = [line_chart(metric, _curves(groups, metric), is_share=metric.endswith("success_rate"))]
    if metric in IN_TRAINING:
        charts.append(line_chart("in training", _curves(groups, IN_TRAINING[metric]), is_share="success" in metric))
    about = f"{metric}: interquartile mean over the runs; bands reach from the lowest run to the highest."
    sections = [
        Section("Curves", charts=charts),
        Section("Last value", headings=HEADINGS, rows=[cells(row) for row in result["groups"]]),
        Section("Differences", rows=[[line] for line in verdicts(result)]),
    ]
    return render_page("Comparison", about, sections)


def _curves(groups: Groups, metric: str) -> list[Series]:
    """Return each group's interquartile mean over the steps that all of its runs reached."""
    lines = []
    for name, runs in groups.items():
        found = [run.series(metric) for run in runs]
        if any(not len(steps) for steps, _ in found):
            continue
        first, last = max(steps[0] for steps, _ in found), min(steps[-1] for steps, _ in found)
        at = np.linspace(first, last, _POINTS) if last > first else np.array([last])
        values = np.stack([np.interp(at, steps, series) for steps, series in found])
        lines.append(Series(name, at, interquartile_mean(values.T), values.min(axis=0), values.max(axis=0)))
    return lines


NUM_RESAMPLES = 5000
MIN_RUNS = 4
"""Least runs of each group for a difference: with 3 against 3 runs the clearest outcome, all of one group above
all of the other, comes about by chance in 2 of 20 ways to divide them (10 %), of 4 against 4 in 2 of 70 (3 %)."""
_ROUNDING = 1e-12  # of the largest score: means of equal numbers differ by less


def interquartile_mean(scores: np.ndarray) -> np.ndarray:
    """Return the mean of the middle half of scores [..., R], [...]: a quarter of them is cut off at each end.

    With a number that four does not divide, the outermost that are left count in part, so that few runs give a smooth
    result: with 5 scores, 1 1/4 are cut off at each end, and it is (0.75 b + c + 0.75 d) / 2.5.
    """
    ordered = np.sort(np.asarray(scores, dtype=float), axis=-1)
    num_runs = ordered.shape[-1]
    edges = np.arange(num_runs + 1, dtype=float)
    cut = num_runs / 4
    weights = np.clip(np.minimum(edges[1:], num_runs - cut) - np.maximum(edges[:-1], cut), 0.0, 1.0)
    return np.asarray((ordered * weights).sum(axis=-1) / weights.sum())


def bootstrap_interval(
    groups: Sequence[Scores], statistic: Callable[[list[np.ndarray]], np.ndarray]
) -> tuple[float, float]:
    """Return the 95 % percentile interval of a statistic of groups, by a stratified bootstrap.

    Args:
        groups: the scores of each group; the runs of each task are resampled by themselves.
        statistic: [K] of all scores of each group, [K, R].
    """
    generator = np.random.default_rng(0)
    drawn = [
        np.concatenate([generator.choice(scores, (NUM_RESAMPLES, len(scores))) for scores in group.values()], axis=1)
        for group in groups
    ]
    low, high = np.percentile(statistic(drawn), [2.5, 97.5])
    return float(low), float(high)


def compare_groups(first: str, second: str, groups: Mapping[str, Scores]) -> dict[str, Any]:
    """Compare two groups of runs of the same tasks.

    ``groups`` has scores by group and task. A winner is named where both have at least ``MIN_RUNS`` runs of each task,
    and the difference's interval does not reach 0; else not.

    Returns:
        The names ``first`` and ``second``; the ``difference`` of the interquartile means, first - second, and its
        ``interval_95``, None where a group has a single run of some task; and the ``verdict``, the higher group or the
        reason for none.
    """
    a, b = groups[first], groups[second]

    def difference(scores: list[np.ndarray]) -> np.ndarray:
        return interquartile_mean(scores[0]) - interquartile_mean(scores[1])

    found = float(difference([np.concatenate(list(a.values())), np.concatenate(list(b.values()))]))
    fewest = min(len(scores) for group in (a, b) for scores in group.values())
    interval = bootstrap_interval([a, b], difference) if fewest > 1 else None
    largest = max(np.abs(scores).max() for group in (a, b) for scores in group.values())
    if interval is None or fewest < MIN_RUNS:
        verdict = f"too few runs to say: {fewest}, and at least {MIN_RUNS} of each are needed"
    elif interval[0] <= _ROUNDING * largest and interval[1] >= -_ROUNDING * largest:
        verdict = "no difference can be told from chance"
    else:
        verdict = f"{first if found > 0 else second} is higher"
    return {"first": first, "second": second, "difference": found, "interval_95": interval, "verdict": verdict}


EXAMPLES = (
    "outputs/cart_pole_*",
    "ppo=outputs/a_1,outputs/a_2 grpo=outputs/b_1,outputs/b_2 --out comparison.html",
    "outputs/push_cube_* --metric eval/avg_length --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="runs' folders, or 'latest'; those whose configs differ in the seed alone are a group. Or groups: "
        "NAME=RUN,RUN,...",
    )
    parser.add_argument(
        "--metric",
        default="eval/success_rate",
        help="a metric of metrics.jsonl, of which the last value counts (default: %(default)s)",
    )
    page = output_file_with((".html", ".htm"))
    parser.add_argument("--out", type=page, metavar="FILE", help="write a page with a plot and the tables")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Compare and print; return 0."""
    result, groups = compare_runs(args.runs, args.metric)
    if args.out is not None:
        args.out.write_text(make_page(result, groups), encoding="utf-8")
    print_result(args, result, format_comparison)
    return 0
