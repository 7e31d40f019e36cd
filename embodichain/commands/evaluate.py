"""``embodichain eval``. Shapes: E episodes."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.agents.rl.checkpoint.saved_run import find_run
from embodichain.agents.rl.nan_guard.nonfinite import non_finite_entries
from embodichain.agents.rl.trainer.evaluation import Evaluator, wilson_interval
from embodichain.commands.arguments import add_device, add_json, add_run, whole_number
from embodichain.tools.open_run import open_run
from embodichain.utils.module_utils import add_allow_import, allowed_imports

__all__ = ["EXAMPLES", "Statistics", "add_arguments", "describe", "run"]

EXAMPLES = ("latest", "outputs/push_cube_ppo_20260101_120000/best --episodes 1000", "latest --json > evaluation.json")

# Not the episodes that the trainings evaluate themselves by: those have chosen the best checkpoint.
_SEED_OFFSET = 2_000_003


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run(parser)
    parser.add_argument("--episodes", type=whole_number(), default=200, metavar="E", help="default: %(default)s")
    parser.add_argument("--envs", type=whole_number(), default=50, metavar="N", help="side by side (default: 50)")
    parser.add_argument(
        "--seed",
        type=whole_number(0),
        default=0,
        help="of the set of episodes; the same for all runs, whatever seed they were trained with (default: 0)",
    )
    add_json(parser)
    add_device(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Evaluate and print; return 0, or 1 where the policy is broken.

    Raises:
        ConfigError: there is no such run, or it cannot be built here.
    """
    saved = find_run(args.target)
    with open_run(saved, min(args.envs, args.episodes), args.device, allowed_imports(args)) as opened:
        if broken := non_finite_entries(opened.policy):
            print(f"error: {saved.checkpoint}: not finite in the policy: {', '.join(broken)}", file=sys.stderr)
            return 1
        seed = args.seed + _SEED_OFFSET
        evaluator = Evaluator(opened.env, args.episodes, seed, opened.device, saved.folder / "videos")
        evaluator.run(opened.policy, "")
    columns = evaluator.table.columns()
    rate = float(columns["success"].mean())
    low, high = wilson_interval(rate, args.episodes)
    result = {
        "run": str(saved.folder),
        "checkpoint": str(saved.checkpoint),
        "env_steps": saved.content["global_step"],
        "episodes": args.episodes,
        "seed": args.seed,
        "success_rate": rate,
        "success_interval_95": [low, high],
        "figures": {name: describe(values).__dict__ for name, values in columns.items() if name != "success"},
    }
    print(json.dumps(result, indent=2) if args.json else _text(result))
    return 0


@dataclass(frozen=True)
class Statistics:
    """Of a figure over episodes.

    Attributes:
        mean: mean.
        interval_95: of the mean, by its standard error: mean +- 1.96 s / sqrt(E).
        std: s, the episodes' standard deviation.
        lowest: smallest value.
        highest: largest value.
    """

    mean: float
    interval_95: tuple[float, float]
    std: float
    lowest: float
    highest: float


def describe(values: np.ndarray) -> Statistics:
    """Return the statistics of values [E]; of a single one the interval is the value itself."""
    mean = float(values.mean())
    std = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    half = 1.96 * std / len(values) ** 0.5
    return Statistics(mean, (mean - half, mean + half), std, float(values.min()), float(values.max()))


def _text(result: dict[str, Any]) -> str:
    low, high = result["success_interval_95"]
    figures = {name.replace("_", " "): stats for name, stats in result["figures"].items()}
    width = max(len(name) for name in figures) + 2
    lines = [
        f"{Path(result['checkpoint']).name}, after {result['env_steps']:,} environment steps",
        "",
        f"success rate  {result['success_rate']:.1%} of {result['episodes']} episodes "
        f"(95 % interval {low:.1%} to {high:.1%})",
        "",
        f"{'an episode':{width}}{'mean':>10}  {'95 % interval':>22}{'std':>10}{'lowest':>10}{'highest':>10}",
    ]
    for name, stats in figures.items():
        start, end = stats["interval_95"]
        interval = f"{start:.4g} to {end:.4g}"
        others = "".join(f"{stats[key]:10.4g}" for key in ("std", "lowest", "highest"))
        lines.append(f"{name:{width}}{stats['mean']:10.4g}  {interval:>22}{others}")
    lines += ["", "rewards are summed over an episode, metrics are means over its steps or taken at its last step"]
    return "\n".join(lines)
