"""Medians over the rounds, as a table and a plot."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.peers.setting import Setting
from benchmarks.peers.worker import FLOORS

Rounds = Mapping[str, Sequence[Mapping[str, Any]]]
"""Output of each learner's process in each round, by learner."""

NAMES = {
    "ours": "this library",
    "rsl_rl": "rsl_rl",
    "skrl": "skrl",
    "sb3": "Stable-Baselines3",
    "torchrl": "TorchRL",
    "cleanrl": "CleanRL's loop",
}
PARTS = {"env_step": "env.step", "policy": "policy + bookkeeping", "update": "update"}
COLORS = {"env_step": "tab:blue", "policy": "tab:orange", "update": "tab:green"}


def spread(values: Sequence[float], digits: int) -> dict[str, Any]:
    """Return median and quartiles over rounds, and the rounds' values."""
    ordered = sorted(values)
    low, high = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
    median = statistics.median(values)
    numbers = {"median": median, "low": low, "high": high}
    return {name: round(x, digits) for name, x in numbers.items()} | {"rounds": [round(x, digits) for x in values]}


def summary(rounds: Rounds, setting: Setting) -> dict[str, Any]:
    """Return the results of one task.

    ``faster`` is the ratio of this library's steps/s to the learner's, round by round.
    """
    steps = setting.iteration_steps
    result: dict[str, Any] = {"setting": _describe(setting), "learners": {}}
    for learner, values in rounds.items():
        if learner == FLOORS:
            names = ("bare_step", "env_step_alone", "gemm")
            result["floors"] = {name: spread([v[name] for v in values], 4) for name in names}
            result["floors"]["gemm_gflop"] = round(values[0]["gemm_gflop"], 2)
            continue
        row: dict[str, Any] = {name: spread([v[name] for v in values], 4) for name in ("seconds", *PARTS)}
        row["steps_per_second"] = spread([steps / v["seconds"] for v in values], 0)
        if learner != "ours" and "ours" in rounds:
            pairs = zip(values, rounds["ours"], strict=True)
            row["faster"] = spread([v["seconds"] / own["seconds"] for v, own in pairs], 3)
        row["threads"] = values[-1]["threads"]
        row["returns"] = [_ends(v["returns"]) for v in values]
        result["learners"][learner] = row
    return result


def _describe(setting: Setting) -> str:
    network = " x ".join(map(str, setting.hidden_sizes))
    return (
        f"{setting.num_envs} environments x {setting.num_steps} steps, {setting.num_epochs} epochs of "
        f"{setting.num_minibatches} minibatches of {setting.batch_size}, MLP {network} {setting.activation}, float32"
    )


def _ends(returns: Sequence[float | None]) -> list[float]:
    """Return the mean return of the first and of the last fifth of the iterations in which episodes ended."""
    known = [x for x in returns if x is not None]
    if not known:
        return []
    fifth = max(1, len(known) // 5)
    return [round(statistics.mean(part), 2) for part in (known[:fifth], known[-fifth:])]


def print_table(task: str, result: Mapping[str, Any]) -> None:
    """Print the results of one task: medians over rounds."""
    print(f"\n{task}: {result['setting']}")
    print(
        f"{'':20}{'iteration s':>12}{'env.step s':>12}{'policy s':>10}{'update s':>10}"
        f"{'steps/s':>9}  {'(quartiles)':15}{'ours is':>8}  {'(quartiles)':14}{'threads':>8}  returns"
    )
    for learner, row in sorted(result["learners"].items(), key=lambda item: item[1]["seconds"]["median"]):
        speed, faster = row["steps_per_second"], row.get("faster")
        line = f"{NAMES[learner]:20}{row['seconds']['median']:12.3f}{row['env_step']['median']:12.3f}"
        line += f"{row['policy']['median']:10.3f}{row['update']['median']:10.3f}"
        line += f"{speed['median']:9,.0f}  {_range(speed, ',.0f'):15}"
        line += f"{faster['median']:7.2f}x  {_range(faster, '.2f'):14}" if faster else " " * 24
        ends = [e for e in row["returns"] if e]
        arrow = " -> ".join(f"{statistics.median(x):.1f}" for x in zip(*ends, strict=True))
        print(f"{line}{row['threads']:8}  {arrow}")
    floors = result.get("floors")
    if floors:
        print(
            f"floors: bare physics {floors['bare_step']['median']:.3f} s, env.step without a learner "
            f"{floors['env_step_alone']['median']:.3f} s, the update's matrix products alone "
            f"{floors['gemm']['median']:.3f} s ({floors['gemm_gflop']} GFLOP)"
        )


def _range(values: Mapping[str, Any], form: str) -> str:
    return f"({values['low']:{form}}-{values['high']:{form}})"


def draw(results: Mapping[str, Mapping[str, Any]], picture: Path) -> None:
    """Plot each task's iterations as stacked bars, and the floors below them."""
    height = 1.3 + 0.36 * max(len(result["learners"]) + 1 for result in results.values())
    figure = Figure(figsize=(6.5 * len(results), height), layout="constrained")
    for axis, (task, result) in zip(figure.subplots(1, len(results), squeeze=False)[0], results.items(), strict=True):
        rows = sorted(result["learners"].items(), key=lambda item: item[1]["seconds"]["median"])
        labels = [NAMES[learner] for learner, _ in rows]
        bars = {name: [row[name]["median"] for _, row in rows] for name in PARTS}
        if "floors" in result:
            labels.append("floors")
            for name, floor in (("env_step", "bare_step"), ("update", "gemm")):
                bars[name].append(result["floors"][floor]["median"])
            bars["policy"].append(0.0)
        left = [0.0] * len(labels)
        for name, values in bars.items():
            axis.barh(labels, values, left=left, color=COLORS[name], label=PARTS[name])
            left = [a + b for a, b in zip(left, values, strict=True)]
        for i, (_, row) in enumerate(rows):
            axis.text(left[i], i, f" {row['steps_per_second']['median']:,.0f} steps/s", va="center", fontsize=8)
        axis.set_xlim(right=1.25 * max(left))
        axis.invert_yaxis()
        axis.set(title=task, xlabel="seconds an iteration (median of rounds)")
    handles, names = axis.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names))
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110)
