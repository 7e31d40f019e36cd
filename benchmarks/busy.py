"""Slow-down of a training beside other processes.

    python benchmarks/busy.py
    python benchmarks/busy.py --hogs 0 1 2 --rounds 5

PushCube's quickstart is trained beside processes that only compute. Their number changes with every iteration, so that
other load on the machine slows all cases alike. On C cores, H such processes beside a training that uses all cores
leave it C / (C + H) of the CPU, if the system shares fairly: this is the expected speed. The table has the medians over
the rounds for collection, update and both. The last line is JSON.
"""

from __future__ import annotations

from embodichain.utils.openmp import limit_openmp_spinning

if __name__ == "__main__":
    limit_openmp_spinning()

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from embodichain.agents.rl.build import build_envs, build_learner
from embodichain.agents.rl.metrics.sinks import RunLog
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.trainer.trainer import Trainer

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs/agents/rl/push_cube/train_config_quickstart.json"
WARM_UP = 3
PARTS = ("collect", "update", "iteration")


class Iterations:
    """Runs a changing number of processes beside the training, and takes the times."""

    def __init__(self, numbers: list[int]) -> None:
        self.seconds: dict[int, dict[str, list[float]]] = {n: {part: [] for part in PARTS} for n in numbers}
        self.order = numbers
        self.count = -WARM_UP

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Take an iteration's times."""
        if self.count >= 0:
            taken = self.seconds[self.present()]
            collect, update = scalars["time/collect_seconds"], scalars["time/update_seconds"]
            for part, value in zip(PARTS, (collect, update, collect + update), strict=True):
                taken[part].append(value)
        self.count += 1

    def present(self) -> int:
        """Return the number of processes beside the next iteration."""
        return self.order[max(self.count, 0) % len(self.order)]

    def close(self) -> None:
        """Close nothing."""


@contextmanager
def company(count: int) -> Iterator[None]:
    """Run ``count`` processes that only compute."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def train(iterations: Iterations, total: int) -> None:
    """Train for ``total`` iterations."""
    run = load_run_config(str(CONFIG), ["trainer.events={}", "trainer.enable_eval=false", "trainer.device=cpu"])
    cfg = run.trainer
    torch.manual_seed(cfg.seed)
    env, _ = build_envs(run)
    policy, algorithm = build_learner(run, env, torch.device("cpu"))
    with TemporaryDirectory() as folder:
        trainer = Trainer(
            policy,
            env,
            algorithm,
            cfg.buffer_size,
            save_freq="1000000 it",
            checkpoint_dir=folder,
            cfg=cfg,
            config={},
            log=RunLog([iterations]),
        )
        iterate = trainer._iterate

        def beside_others() -> dict[str, float]:
            with company(iterations.present()):
                return iterate()

        vars(trainer)["_iterate"] = beside_others
        trainer.train(total * cfg.buffer_size * env.num_envs)
    env.close()


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--hogs", type=int, nargs="+", default=[0, 1, 2], help="numbers of processes; the first is compared with"
    )
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    iterations = Iterations(args.hogs)
    train(iterations, WARM_UP + args.rounds * len(args.hogs))
    cores, first = len(os.sched_getaffinity(0)), args.hogs[0]
    print(f"PushCube's quickstart on {cores} cores: its speed, against {first} beside it")
    print(f"{'other processes':>20}" + "".join(f"{part:>12}" for part in PARTS) + f"{'share of the CPU':>17}")
    rows = []
    for hogs in args.hogs:
        medians = {part: statistics.median(iterations.seconds[hogs][part]) for part in PARTS}
        speed = {part: statistics.median(iterations.seconds[first][part]) / medians[part] for part in PARTS}
        fair = (cores + first) / (cores + hogs)
        print(f"{hogs:>20}" + "".join(f"{speed[part]:>12.0%}" for part in PARTS) + f"{fair:>17.0%}", flush=True)
        rows.append({"processes": hogs, "seconds": medians, "speed": speed, "in_proportion": fair})
    print(json.dumps({"benchmark": "busy", "cores": cores, "rounds": args.rounds, "rows": rows}))


if __name__ == "__main__":
    main()
