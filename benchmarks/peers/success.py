"""Time to success of this library, CleanRL's loop and Stable-Baselines3 on the manipulation tasks.

    pip install --no-deps -r benchmarks/peers/requirements.txt
    python -m benchmarks.peers.success --seeds 1 2 3

All train the same environments with the hyperparameters of the quickstart configs, for the same number of
steps; the learning rate decays to 0 in all of them. Every few iterations the deterministic policy is evaluated on the
same 200 episodes, not counted in the time. Success is reached at the first of two evaluations in a row at ``--success``
or above. Each training is a separate process on one core, ``--jobs`` of them side by side, and the time is CPU time.
With ``--clock`` they run one after another on all cores, for physics and for torch, with each learner's OpenMP
defaults; the time is wall time, and the machine has to be quiet. The last line is JSON.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from benchmarks import curves
from benchmarks.peers.clock import Clock
from benchmarks.peers.setting import SUCCESS_TASKS, load_setting
from benchmarks.peers.worker import LEARNERS, process_environment
from benchmarks.time_to_success import EVAL_EPISODES, medians
from embodichain.agents.rl.build import build_envs
from embodichain.agents.rl.trainer.evaluation import Evaluator


def train(task: str, learner: str, seed: int, every: int, threads: int) -> None:
    """Train in this process, and print the points of the learning curve.

    The time is wall time, with one thread CPU time.
    """
    torch.set_num_threads(threads)
    overrides = ["trainer.enable_eval=true", f"trainer.seed={seed}", f"env.sim_cfg.num_threads={threads}"]
    setting = load_setting(task, overrides, changes={})
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (what libraries draw from)
    env, eval_env = build_envs(setting.run)
    assert eval_env is not None
    evaluator = Evaluator(eval_env, EVAL_EPISODES, curves.EVAL_SEED, torch.device("cpu"), Path("videos"))
    iterations = setting.run.trainer.iterations

    def evaluate(clock: Clock) -> None:
        count = len(clock.iterations)
        if count % every == 0 or count == iterations:
            success = evaluator.run(cast(Any, curves.Acting(clock.act)), "peer").success_rate
            seconds = sum(iteration.seconds for iteration in clock.iterations)
            point = {"step": count * setting.iteration_steps, "seconds": seconds, "success": success}
            print(json.dumps(point), flush=True)

    module = importlib.import_module(f"benchmarks.peers.{LEARNERS[learner]}")
    with Clock(time.process_time if threads == 1 else time.perf_counter, evaluate) as clock:
        clock.watch(env)
        module.train(setting, env, clock, iterations)


def run_child(task: str, learner: str, seed: int, every: int, threads: int) -> list[curves.Point]:
    """Train in a separate process; return the points of its learning curve."""
    options = map(str, (task, learner, seed, every, threads))
    with tempfile.TemporaryDirectory() as folder:  # for the logs
        arguments = ["--child", *options]
        return curves.run_child("benchmarks.peers.success", arguments, process_environment(learner, threads), folder)


def main() -> None:
    """Run the benchmark, or one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", choices=SUCCESS_TASKS, default=["ReachRL", "OpenDrawerRL"])
    parser.add_argument("--learners", nargs="+", choices=["ours", "cleanrl", "sb3"], default=["ours", "cleanrl", "sb3"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--success", type=float, default=0.95)
    parser.add_argument("--every", type=int, default=6, help="iterations between evaluations")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--clock", action="store_true", help="wall time, with all cores")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        task, learner, *numbers = args.child
        train(task, learner, *map(int, numbers))
        return
    threads, jobs = (len(os.sched_getaffinity(0)), 1) if args.clock else (1, args.jobs)
    results: list[dict[str, Any]] = []
    print(f"{'task':14}{'learner':10}{'s to success':>13}{'in time':>9}{'at the end':>12}{'whole run s':>13}")
    with ThreadPoolExecutor(jobs) as pool:
        runs = {
            (task, learner): [pool.submit(run_child, task, learner, seed, args.every, threads) for seed in args.seeds]
            for task in args.task
            for learner in args.learners
        }
        for (task, learner), futures in runs.items():
            found = [future.result() for future in futures]
            _, seconds, in_time, last, total = medians(found, args.success)
            print(f"{task:14}{learner:10}{seconds:>13.1f}{in_time:>9}{last:>12.1%}{total:>13.1f}", flush=True)
            results.append({"task": task, "learner": learner, "seeds": args.seeds, "curves": found})
    print(json.dumps({"benchmark": "peers.success", "success": args.success, "threads": threads, "results": results}))


if __name__ == "__main__":
    main()
