"""Training speed of this library, rsl_rl, skrl, Stable-Baselines3, TorchRL and CleanRL's loop.

    pip install --no-deps -r benchmarks/peers/requirements.txt
    python -m benchmarks.peers
    python -m benchmarks.peers --task CartPoleRL --learners ours cleanrl --rounds 1
    python -m benchmarks.peers --task CartPoleRL --rounds 1 --iterations 30    # do all of them learn?

All train the same environments with PPO and the same hyperparameters, those of the quickstart configs (see
``setting.py``), in float32: the same numbers of environments, steps, epochs and minibatches, the same networks,
normalised observations, logs in TensorBoard. Ours is the real trainer, built from the config. Each learner runs in a
separate process, with one thread per core. A round runs them one after another, so that a busy machine slows all, and
each round begins with another learner.

An iteration is split into ``env.step`` (the environment's own method, the same for all), the update (returns and
advantages included), and everything else: policy, storage, adapter, logs. A round's value is the median of its counted
iterations; the table has the medians over the rounds, and the last line is JSON. The floors are lower bounds for any
learner: the physics alone, and the update's matrix products alone.

On a busy machine, ``--cpu-time`` measures the CPU seconds of one thread: the work that each library has to compute, on
which other load has little influence. It does not measure how well a library uses threads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.peers.report import draw, print_table, summary
from benchmarks.peers.setting import TASKS, load_setting
from benchmarks.peers.worker import FLOORS, LEARNERS, ROOT, Job, process_environment, run_job

PACKAGES = ("torch", "mujoco", "rsl-rl-lib", "skrl", "stable-baselines3", "torchrl", "tensordict")


def main() -> None:
    """Run the benchmark, or one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--learners", nargs="+", choices=[*LEARNERS, FLOORS], default=[*LEARNERS, FLOORS])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=2, help="iterations that are not counted, at least one")
    parser.add_argument("--iterations", type=int, default=8, help="counted iterations of each process")
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads and cores of each process"
    )
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="measure CPU seconds of one thread, on which other load has little influence",
    )
    parser.add_argument("--override", action="append", default=[], metavar="key=value", help="of the training config")
    parser.add_argument("--picture", type=Path, default=Path("outputs/peers.png"), help="plot to write, png")
    parser.add_argument("--job", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        folder = Path(args.job.pop("folder"))
        (folder / "result.json").write_text(json.dumps(run_job(Job(**args.job), folder)), encoding="utf-8")
        return
    if args.cpu_time:
        args.threads = 1  # more would wait for each other, spinning
    if args.warm_up < 1:
        parser.error("--warm-up: at least 1, since the first iteration includes one-time work")

    rounds: dict[str, dict[str, list[dict[str, Any]]]] = {task: {x: [] for x in args.learners} for task in args.task}
    for k in range(args.rounds):
        for task in args.task:
            shift = k % len(args.learners)
            for learner in [*args.learners[shift:], *args.learners[:shift]]:
                job = Job(task, learner, args.warm_up, args.iterations, args.cpu_time, args.override)
                result = spawn(job, args.threads)
                rounds[task][learner].append(result)
                shown = " ".join(f"{name} {x:.3f}" for name, x in result.items() if isinstance(x, float))
                print(f"round {k + 1} of {args.rounds}: {task} {learner}: {shown}", file=sys.stderr, flush=True)

    results = {task: summary(rounds[task], load_setting(task, args.override)) for task in args.task}
    for task, result in results.items():
        print_table(task, result)
    if set(args.learners) != {FLOORS}:
        draw(results, args.picture)
        print(f"plot: {args.picture}")
    print(
        json.dumps(
            {
                "benchmark": "peers",
                "rounds": args.rounds,
                "iterations": args.iterations,
                "threads": args.threads,
                "cpu_time": args.cpu_time,
                "processors": len(os.sched_getaffinity(0)),
                "load": round(os.getloadavg()[0], 1),
                "versions": _versions(),
                "tasks": results,
            }
        )
    )


def spawn(job: Job, threads: int) -> dict[str, Any]:
    """Run a job in a separate process, and return its output."""
    environment = process_environment(job.learner, threads)
    processors = sorted(os.sched_getaffinity(0))[:threads]
    with tempfile.TemporaryDirectory() as folder:
        content = json.dumps(asdict(job) | {"folder": folder})
        command = [sys.executable, "-m", "benchmarks.peers", "--job", content]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=lambda: os.sched_setaffinity(0, processors),
        )
        if done.returncode:
            raise SystemExit(f"{job.learner} on {job.task} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
        result: dict[str, Any] = json.loads((Path(folder) / "result.json").read_text(encoding="utf-8"))
    return result


def _versions() -> dict[str, str]:
    known = {}
    for name in PACKAGES:
        try:
            known[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return known


if __name__ == "__main__":
    main()
