"""What asynchronous collection does to learning: the age of the policy that collects, and the time to equal success.

python benchmarks/async_learning.py lag --lags 0 1 4 16 --seeds 1 2
python benchmarks/async_learning.py time --seeds 1 2 3

`lag` trains CartPole with a learner so slow that every rollout is exactly so many updates old when it is learned from,
with and without the decoupled objective. `time` gives the policy a latency (a sleep, which, like a computation on a
GPU, holds neither the interpreter nor a core) and the update the same time, and trains in turn and asynchronously.
Both draw a picture, and print a table and, last, one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
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
from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.utils.run_log import RunLog
from embodichain.agents.rl.utils.trainer import Trainer
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils.configclass import replace

CONFIG = "configs/agents/rl/basic/cart_pole/train_config.json"
STEPS = {"lag": 16, "time": 32}  # of a rollout: 2048 transitions in both
OVERRIDES = [
    "trainer.enable_eval=false",
    "trainer.events={}",
    "trainer.device=cpu",
    "algorithm.cfg.batch_size=512",
]
CFG = {"learning_rate": 1e-3, "n_epochs": 5, "batch_size": 512, "gamma": 0.98, "max_grad_norm": 1.0}
RETURN = "charts/episode_reward_avg_100"


class PatientCollector(AsyncCollector):
    """Lets the learner have a rollout only when as many wait as may: each is then as old as it may be."""

    def collect(self, num_steps: int, rollout: TensorDict | None = None) -> TensorDict:
        """Return the next rollout."""
        while self.is_running and self._num_steps is not None and len(self.buffer) < self.max_staleness:
            time.sleep(0.001)
        return super().collect(num_steps, rollout)


class Points:
    """A sink of the log that keeps the training's return over steps and time."""

    name = "points"

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Keep one iteration."""
        row = {"step": float(step), "seconds": scalars["time/train_seconds"], "return": scalars.get(RETURN, 0.0)}
        self.rows.append(row | {"lag": scalars.get("async/lag_max", 0.0)})

    def close(self) -> None:
        """Nothing to do."""


def slow_policy(policy: Policy, seconds: float) -> Policy:
    """Make a policy take so long to choose."""

    class Slow(type(policy)):  # type: ignore[misc]
        def get_action(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
            time.sleep(seconds)
            return super().get_action(td, deterministic)  # type: ignore[no-any-return]

    policy.__class__ = Slow
    return policy


def slow_update(algorithm: BaseAlgorithm, seconds: float) -> None:
    """Make updates take so long at least."""
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
) -> list[dict[str, float]]:
    """Train once, with updates as long as a rollout's choices; return a row for each iteration."""
    steps = STEPS["time" if latency else "lag"]
    sizes = [f"trainer.num_envs={2048 // steps}", f"trainer.buffer_size={steps}"]
    run = load_run_config(CONFIG, [*OVERRIDES, *sizes, f"trainer.seed={seed}"])
    torch.manual_seed(seed)
    # One thread for the physics: so few environments are stepped as fast, and beside others' work faster.
    env = build_env(run.env_id, replace(run.env, sim_cfg=replace(run.env.sim_cfg, num_threads=1)))
    policy, _ = build_learner(run, env, torch.device("cpu"))
    algorithm = build_algo("ppo", {**CFG, "decoupled": decoupled}, policy, "cpu")
    if latency:
        slow_policy(policy, latency)
        slow_update(algorithm, steps * latency)
    collector: BaseCollector | None = None
    if collector_class is not None:
        collector = collector_class(env, policy, VLABuffer(staleness + 1), "cpu", max_staleness=staleness)
    points = Points()
    with TemporaryDirectory() as folder:  # nobody wants these policies
        trainer = Trainer(
            policy,
            env,
            algorithm,
            steps,
            save_freq=10**9,
            checkpoint_dir=folder,
            config={},
            log=RunLog([points]),
            collector=collector,
        )
        trainer.train(iterations * 2048)
    env.close()
    return points.rows


def mean_of_last(rows: list[dict[str, float]], count: int = 5) -> float:
    """Return the mean return of the last iterations."""
    return statistics.mean(row["return"] for row in rows[-count:])


def lag_curve(args: argparse.Namespace) -> dict[str, Any]:
    """Train with each lag, with and without correction."""
    cases = [(lag, decoupled) for lag in args.lags for decoupled in ((True, False) if lag else (True,))]
    results: dict[str, list[list[dict[str, float]]]] = {}
    print(f"{'lag':>4} {'decoupled':>10} {'return at the end, each seed':>30}")
    for lag, decoupled in cases:
        runs = [train(seed, args.iterations, PatientCollector, lag, decoupled) for seed in args.seeds]
        results[f"{lag} {'decoupled' if decoupled else 'plain'}"] = runs
        seen = {int(row["lag"]) for rows in runs for row in rows[lag + 1 :]}
        assert seen == {lag}, seen
        print(f"{lag:>4} {decoupled!s:>10} {'  '.join(f'{mean_of_last(rows):.0f}' for rows in runs):>30}", flush=True)
    figure = Figure(figsize=(10, 4), layout="constrained")
    curves, ends = figure.subplots(1, 2)
    for name, runs in results.items():
        lag, kind = name.split()
        steps = [row["step"] for row in runs[0]]
        mean = [statistics.mean(rows[i]["return"] for rows in runs) for i in range(len(steps))]
        colour = f"C{args.lags.index(int(lag))}"
        curves.plot(steps, mean, color=colour, linestyle="-" if kind == "decoupled" else ":", label=f"lag {name}")
    for kind, style in (("decoupled", "o-"), ("plain", "s:")):
        chosen = [lag for lag in args.lags if f"{lag} {kind}" in results or lag == 0]
        runs_of = [results.get(f"{lag} {kind}", results.get("0 decoupled", [])) for lag in chosen]
        ends.plot(range(len(chosen)), [statistics.mean(map(mean_of_last, runs)) for runs in runs_of], style, label=kind)
        ends.set_xticks(range(len(chosen)), [str(lag) for lag in chosen])
    curves.set(xlabel="environment steps", ylabel="return of the last 100 episodes", title="CartPole")
    curves.locator_params(axis="x", nbins=5)
    ends.set(xlabel="lag of every rollout (updates)", ylabel="return at the end", title=f"{len(args.seeds)} seeds")
    for axis in (curves, ends):
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    save(figure, args.picture or Path("outputs/async_lag.png"))
    summary = {name: [round(mean_of_last(rows), 1) for rows in runs] for name, runs in results.items()}
    return {"benchmark": "async_lag", "iterations": args.iterations, "seeds": args.seeds, "return": summary}


def seconds_to(rows: list[dict[str, float]], target: float) -> float | None:
    """Return the time at which the return first reached the target."""
    return next((row["seconds"] for row in rows if row["return"] >= target), None)


def time_curve(args: argparse.Namespace) -> dict[str, Any]:
    """Train in turn and asynchronously with a slow policy."""
    update = STEPS["time"] * args.latency
    kinds: dict[str, tuple[type[AsyncCollector] | None, int]] = {
        "in turn": (None, 0),
        "asynchronous, max_staleness 1": (AsyncCollector, 1),
    }
    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        running = {
            name: [pool.submit(train, seed, args.iterations, *kind, latency=args.latency) for seed in args.seeds]
            for name, kind in kinds.items()
        }
        results = {name: [future.result() for future in futures] for name, futures in running.items()}
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
        reached = [seconds_to(rows, args.target) for rows in runs]
        table[name] = {"seconds_to_target": reached, "seconds": [rows[-1]["seconds"] for rows in runs]}
        shown = "  ".join("never" if x is None else f"{x:.1f}" for x in reached)
        print(f"{name:>30} {shown:>30} {statistics.mean(rows[-1]['seconds'] for rows in runs):>8.1f}")
    title = f"{1000 * args.latency:.0f} ms a choice, {update:.1f} s an update"
    over_time.axhline(args.target, color="grey", linewidth=0.8)
    over_time.set(xlabel="training time (s)", ylabel="return of the last 100 episodes", title=title)
    over_steps.set(xlabel="environment steps", title=f"{len(args.seeds)} seeds")
    over_steps.locator_params(axis="x", nbins=5)
    for axis in (over_time, over_steps):
        axis.grid(alpha=0.3)
        axis.legend()
    save(figure, args.picture or Path("outputs/async_time.png"))
    return {"benchmark": "async_time", "latency": args.latency, "update": update, "target": args.target, "runs": table}


def save(figure: Figure, picture: Path) -> None:
    """Write a picture."""
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
    parser.add_argument("--target", type=float, default=150.0, metavar="RETURN")
    parser.add_argument("--picture", type=Path)
    args = parser.parse_args()
    result = lag_curve(args) if args.what == "lag" else time_curve(args)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
