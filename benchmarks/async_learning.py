"""Effect of asynchronous collection on learning: the lag of the collecting policy, and the time to equal success.

python benchmarks/async_learning.py lag --lags 0 1 4 16 --seeds 1 2 3 4 5 6 7 8
python benchmarks/async_learning.py time --seeds 1 2 3

`lag` trains CartPole with a learner so slow that every rollout has exactly the given lag (updates between collection
and use), with and without the decoupled objective. `time` gives the policy a latency (a sleep, which, like a
computation on a GPU, holds neither the interpreter nor a core) and the update the same time, and trains with
synchronous and with asynchronous collection. Returns are those of evaluations, whose time does not count: a training
sees long episodes only when they end. Both write a plot, and print a table and, last, one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from matplotlib.figure import Figure
from tensordict import TensorDict

from embodichain.agents.rl.algo import BaseAlgorithm, build_algo
from embodichain.agents.rl.buffer import VLABuffer
from embodichain.agents.rl.build import build_learner
from embodichain.agents.rl.collector import AsyncCollector, BaseCollector
from embodichain.agents.rl.metrics.sinks import RunLog
from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.trainer.trainer import Trainer
from embodichain.lab.gym.envs import EmbodiedEnvCfg
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils.configclass import replace

EPISODES = 50  # episodes and environments of an evaluation
CONFIG = "configs/agents/rl/basic/cart_pole/train_config.json"
STEPS = {"lag": 16, "time": 32}  # per rollout: 2048 transitions in both
OVERRIDES = [
    "trainer.enable_eval=true",
    f"trainer.num_eval_envs={EPISODES}",
    "trainer.events={}",
    "trainer.device=cpu",
    "algorithm.cfg.batch_size=512",
]
CFG = {"learning_rate": 1e-3, "n_epochs": 5, "batch_size": 512, "gamma": 0.98, "max_grad_norm": 1.0}


class PatientCollector(AsyncCollector):
    """Gives the learner a rollout only when the buffer is full, so that each has the largest lag."""

    def collect(self, num_steps: int, rollout: TensorDict | None = None) -> TensorDict:
        """Return the next rollout."""
        while self.is_running and self._num_steps is not None and len(self.buffer) < self.max_staleness:
            time.sleep(0.001)
        return super().collect(num_steps, rollout)


class Points:
    """A sink of the log that keeps the evaluations' returns over steps and training time."""

    name = "points"

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self.lags: list[int] = []

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Store the lag of each rollout, and a row for each evaluation."""
        self.lags.append(int(scalars.get("async/lag_max", 0.0)))
        if "eval/avg_reward" in scalars:
            row = {"step": float(step), "seconds": scalars["time/train_seconds"], "return": scalars["eval/avg_reward"]}
            self.rows.append(row)

    def close(self) -> None:
        """Close nothing."""


def slow_policy(policy: Policy, seconds: float) -> Policy:
    """Add a latency to the policy, except in evaluations."""

    class Slow(type(policy)):  # type: ignore[misc]
        def get_action(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
            if not deterministic:
                time.sleep(seconds)
            return super().get_action(td, deterministic)

    policy.__class__ = Slow
    return policy


def slow_update(algorithm: BaseAlgorithm, seconds: float) -> None:
    """Make each update take at least this time."""
    update = algorithm.update

    def slowly(rollout: TensorDict) -> dict[str, float]:
        end = time.perf_counter() + seconds
        losses = update(rollout)
        time.sleep(max(0.0, end - time.perf_counter()))
        return losses

    algorithm.update = slowly  # type: ignore[method-assign]


def train(
    seed: int,
    iterations: int,
    collector_class: type[AsyncCollector] | None,
    staleness: int = 0,
    decoupled: bool = True,
    latency: float = 0.0,
    every: int = 2,
) -> Points:
    """Train once, with updates as long as a rollout's choices, and evaluate at regular intervals."""
    steps = STEPS["time" if latency else "lag"]
    sizes = [f"trainer.num_envs={2048 // steps}", f"trainer.buffer_size={steps}"]
    run = load_run_config(CONFIG, [*OVERRIDES, *sizes, f"trainer.seed={seed}"])
    assert run.eval_env is not None
    torch.manual_seed(seed)
    # One thread for the physics: as fast for few environments, and faster on a busy machine.
    env, eval_env = (
        build_env(run.env_id, replace(cfg, sim_cfg=replace(cfg.sim_cfg, num_threads=1)))
        for cfg in (run.env, run.eval_env)
        if isinstance(cfg, EmbodiedEnvCfg)
    )
    policy, _ = build_learner(run, env, torch.device("cpu"))
    algorithm = build_algo("ppo", {**CFG, "decoupled": decoupled}, policy, "cpu")
    if latency:
        slow_policy(policy, latency)
        slow_update(algorithm, steps * latency)
    collector: BaseCollector | None = None
    if collector_class is not None:
        collector = collector_class(env, policy, VLABuffer(staleness + 1), "cpu", max_staleness=staleness)
    points = Points()
    with TemporaryDirectory() as folder:  # the policies are not needed
        trainer = Trainer(
            policy,
            env,
            algorithm,
            steps,
            eval_freq=f"{every} it",
            save_freq=10**9,
            checkpoint_dir=folder,
            eval_env=eval_env,
            num_eval_episodes=EPISODES,
            config={},
            log=RunLog([points]),
            collector=collector,
        )
        trainer.train(iterations * 2048)
    env.close()
    eval_env.close()
    return points


def train_all(
    jobs: int, cases: dict[str, dict[str, Any]], seeds: list[int], iterations: int
) -> dict[str, list[Points]]:
    """Train each case with each seed, ``jobs`` at a time."""
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        running = {
            name: [pool.submit(train, seed, iterations, **case) for seed in seeds] for name, case in cases.items()
        }
        return {name: [future.result() for future in futures] for name, futures in running.items()}


def lag_curve(args: argparse.Namespace) -> dict[str, Any]:
    """Train with each lag, with and without correction."""
    cases = {
        f"{lag} {'decoupled' if decoupled else 'plain'}": {
            "collector_class": PatientCollector,
            "staleness": lag,
            "decoupled": decoupled,
        }
        for lag in args.lags
        for decoupled in ((True, False) if lag else (True,))
    }
    results = train_all(args.jobs, cases, args.seeds, args.iterations)
    ends: dict[str, list[float]] = {}
    first: dict[str, list[float | None]] = {}
    print(
        f"{'':>14} {'return at the end':>20} {f'steps to {args.target:.0f}':>26}   median (lowest-highest) of the seeds"
    )
    for name, runs in results.items():
        lag = int(name.split()[0])
        seen = {seen for points in runs for seen in points.lags[lag + 1 :]}
        assert seen == {lag}, seen
        ends[name] = [round(points.rows[-1]["return"], 1) for points in runs]
        first[name] = [reached(points.rows, args.target, "step") for points in runs]
        print(f"{name:>14} {spread(ends[name]):>20} {spread(first[name]):>26}")
    figure = Figure(figsize=(10, 4), layout="constrained")
    curves, at_end = figure.subplots(1, 2)
    for name, runs in results.items():
        of_lag, kind = name.split()
        steps = [row["step"] for row in runs[0].rows]
        middle = [statistics.median(points.rows[i]["return"] for points in runs) for i in range(len(steps))]
        colour = f"C{args.lags.index(int(of_lag))}"
        curves.plot(steps, middle, color=colour, linestyle="-" if kind == "decoupled" else ":", label=f"lag {name}")
    for kind, style, shift in (("decoupled", "o", -0.1), ("plain", "s", 0.1)):
        named = [(i, ends[f"{lag} {kind}"]) for i, lag in enumerate(args.lags) if f"{lag} {kind}" in ends]
        places = [i + shift for i, values in named for _ in values]
        at_end.plot(places, [value for _, values in named for value in values], style, alpha=0.7, label=kind)
    at_end.set_xticks(range(len(args.lags)), [str(lag) for lag in args.lags])
    curves.set(xlabel="environment steps", ylabel=f"return of {EPISODES} episodes", title="median of the seeds")
    curves.locator_params(axis="x", nbins=5)
    at_end.set(xlabel="lag of every rollout (updates)", ylabel="return at the end", title=f"{len(args.seeds)} seeds")
    for axis in (curves, at_end):
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    save(figure, args.picture or Path("outputs/async_lag.png"))
    runs_of = {"iterations": args.iterations, "seeds": args.seeds, "target": args.target}
    return {"benchmark": "async_lag", **runs_of, "return": ends, "steps_to_target": first}


def reached(rows: list[dict[str, float]], target: float, what: str) -> float | None:
    """Return the ``step`` or ``seconds`` at which the return first reached the target."""
    return next((row[what] for row in rows if row["return"] >= target), None)


def spread(values: Sequence[float | None]) -> str:
    """Return the median of values with their range; infinite ones, never reached, sort last."""
    known = sorted(math.inf if value is None else value for value in values)
    shown = ["never" if value == math.inf else f"{value:,.0f}" for value in (known[0], known[-1])]
    middle = statistics.median(known)
    return f"{'never' if middle == math.inf else f'{middle:,.0f}'} ({shown[0]}-{shown[1]})"


def time_curve(args: argparse.Namespace) -> dict[str, Any]:
    """Train with a slow policy, with synchronous and asynchronous collection."""
    update = STEPS["time"] * args.latency
    cases: dict[str, dict[str, Any]] = {
        "synchronous": {"collector_class": None},
        "asynchronous, max_staleness 1": {"collector_class": AsyncCollector, "staleness": 1},
    }
    cases = {name: case | {"latency": args.latency} for name, case in cases.items()}
    trained = train_all(args.jobs, cases, args.seeds, args.iterations)
    results = {name: [points.rows for points in runs] for name, runs in trained.items()}
    figure = Figure(figsize=(10, 4), layout="constrained")
    over_time, over_steps = figure.subplots(1, 2)
    print(f"{'':>30} {'seconds to return ' + format(args.target, '.0f'):>30} {'all':>8}")
    table = {}
    for i, (name, runs) in enumerate(results.items()):
        for j, rows in enumerate(runs):
            label = name if j == 0 else None
            values = [row["return"] for row in rows]
            over_time.plot([row["seconds"] for row in rows], values, color=f"C{i}", alpha=0.8, label=label)
            over_steps.plot([row["step"] for row in rows], values, color=f"C{i}", alpha=0.8, label=label)
        times = [reached(rows, args.target, "seconds") for rows in runs]
        table[name] = {"seconds_to_target": times, "seconds": [rows[-1]["seconds"] for rows in runs]}
        shown = "  ".join("never" if x is None else f"{x:.1f}" for x in times)
        print(f"{name:>30} {shown:>30} {statistics.mean(rows[-1]['seconds'] for rows in runs):>8.1f}")
    title = f"{1000 * args.latency:.0f} ms a choice, {update:.1f} s an update"
    over_time.axhline(args.target, color="grey", linewidth=0.8)
    over_time.set(xlabel="training time (s)", ylabel=f"return of {EPISODES} episodes", title=title)
    over_steps.set(xlabel="environment steps", title=f"{len(args.seeds)} seeds")
    over_steps.locator_params(axis="x", nbins=5)
    for axis in (over_time, over_steps):
        axis.grid(alpha=0.3)
        axis.legend()
    save(figure, args.picture or Path("outputs/async_time.png"))
    return {"benchmark": "async_time", "latency": args.latency, "update": update, "target": args.target, "runs": table}


def save(figure: Figure, picture: Path) -> None:
    """Write a plot."""
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110)
    print(f"plot: {picture}")


def main() -> None:
    """Read the command line, train, draw and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("lag", "time"))
    parser.add_argument("--lags", type=int, nargs="+", default=[0, 1, 4, 16])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=2, help="of `time`: trainings side by side; they sleep mostly")
    parser.add_argument("--latency", type=float, default=0.1, metavar="SECONDS")
    parser.add_argument("--target", type=float, default=450.0, metavar="RETURN")
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    result = lag_curve(args) if args.what == "lag" else time_curve(args)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
