"""Time to success of variants of a config: the sweep that chose the quickstarts' hyperparameters.

    python -m benchmarks.time_to_success configs/agents/rl/push_cube/train_config_quickstart.json \\
        --seeds 1 2 3 --steps 900000 --every 65536 \\
        --variant "quickstart" --variant "small networks: policy.actor.network_cfg.hidden_sizes=[128,128] ..."

A variant is a name and, after a colon, overrides of the config. Each training is a separate process with one thread,
``--jobs`` of them side by side; it ends after ``--steps`` environment steps, with the learning rate's schedule over all
of them. After every ``--every`` steps the policy is evaluated on 200 fixed episodes. Time is CPU time, with the playing
of demonstrations and without the evaluations: it does not depend on other load, and with two threads the wall time is a
little more than half of it.

Success is reached at the first of two evaluations in a row at ``--success`` or above. The table has the median over the
seeds of the steps and seconds until then, and the last evaluation's median. Below it, every other variant is compared
with the first one: by the interquartile means of the last evaluation and of the whole curve, with intervals.
``--picture`` plots the curves. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from benchmarks.curves import Curve, Point, plot_runs, run_child, train_ours
from embodichain.agents.rl.build import build_envs
from embodichain.agents.rl.run_config import load_run_config
from embodichain.ext.report.compare import compare_groups

EVAL_EPISODES = 200


def train(config: str, overrides: list[str], seed: int, steps: int, every: int) -> None:
    """Train in this process and print the points of the learning curve."""
    torch.set_num_threads(1)
    run = load_run_config(config, [*overrides, "trainer.events={}", "trainer.enable_eval=true", f"trainer.seed={seed}"])
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (the generator that users' code draws from)
    env, eval_env = build_envs(run)
    assert eval_env is not None
    curve = Curve(eval_env, EVAL_EPISODES, {"success": "success_rate"}, time.process_time)
    train_ours(run, env, curve, every, steps)


def time_to(points: list[Point], success: float) -> tuple[float, float]:
    """Return steps and seconds until the first of two points in a row at ``success``; infinite without such points."""
    for point, following in itertools.pairwise(points):
        if min(point["success"], following["success"]) >= success:
            return point["step"], point["seconds"]
    return math.inf, math.inf


def medians(curves: list[list[Point]], success: float) -> tuple[float, float, str, float, float]:
    """Return the median steps and seconds to success, how many reached it, and the last medians of success and time."""
    reached = [time_to(curve, success) for curve in curves]
    steps, seconds = (statistics.median(column) for column in zip(*reached, strict=True))
    last, total = (statistics.median(curve[-1][key] for curve in curves) for key in ("success", "seconds"))
    return steps, seconds, f"{sum(math.isfinite(step) for step, _ in reached)}/{len(curves)}", last, total


def compare(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print and return how the other variants' success differs from the first one's."""
    scores = {
        "at the end": {r["variant"]: [curve[-1]["success"] for curve in r["curves"]] for r in results},
        "on average": {
            r["variant"]: [statistics.fmean(point["success"] for point in curve) for curve in r["curves"]]
            for r in results
        },
    }
    found = []
    for when, by_variant in scores.items():
        groups = {name: {"success": np.array(values)} for name, values in by_variant.items()}
        first, *others = groups
        for other in others:
            result = compare_groups(other, first, groups)
            ends = result["interval_95"]  # None of single seeds
            interval = "" if ends is None else f" (95 % interval {ends[0]:+.1%} to {ends[1]:+.1%})"
            print(f"{other} - {first}, {when}: {result['difference']:+.1%}{interval}: {result['verdict']}")
            found.append({"when": when, **result})
    return found


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """Plot each variant's median over its seeds, and their range."""
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axis = figure.subplots()
    for result in results:
        plot_runs(axis, result["curves"], "success", result["variant"])
    axis.set(xlabel="environment steps", ylabel=f"success of {EVAL_EPISODES} episodes", ylim=(0, 1.02))
    axis.grid(alpha=0.3)
    axis.legend(loc="lower right")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Run the sweep and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--variant", action="append", metavar="NAME: key=value ...", default=[])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=900_000)
    parser.add_argument("--every", type=int, default=65_536)
    parser.add_argument("--success", type=float, default=0.95)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--picture", type=Path, metavar="FILE")
    parser.add_argument("--child", nargs="*", metavar="key=value", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        train(args.config, args.child, args.seeds[0], args.steps, args.every)
        return
    variants = {name.strip(): rest.split() for name, _, rest in (v.partition(":") for v in args.variant or ["config"])}
    print(f"{'variant':28}{'steps':>10}{'cpu s':>8}{'in time':>9}{'last':>8}{'at cpu s':>10}")
    results = []
    with ThreadPoolExecutor(args.jobs) as pool:
        size = ["--steps", str(args.steps), "--every", str(args.every)]
        futures = {
            name: [
                pool.submit(
                    run_child,
                    "benchmarks.time_to_success",
                    [args.config, "--seeds", str(seed), *size, "--child", *overrides],
                )
                for seed in args.seeds
            ]
            for name, overrides in variants.items()
        }
        for name, runs in futures.items():
            curves = [future.result() for future in runs]
            steps, seconds, in_time, last, total = medians(curves, args.success)
            print(f"{name:28}{steps:>10,.0f}{seconds:>8.1f}{in_time:>9}{last:>8.1%}{total:>10.1f}", flush=True)
            results.append({"variant": name, "overrides": variants[name], "seeds": args.seeds, "curves": curves})
    differences = compare(results)
    if args.picture is not None:
        draw(results, args.picture)
    print(json.dumps({"config": args.config, "success": args.success, "differences": differences, "results": results}))


if __name__ == "__main__":
    main()
