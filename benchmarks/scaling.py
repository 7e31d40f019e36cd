"""Speed-up and cost of several processes: weak scaling, bytes per update, and a model for more processes.

    nice -n -15 python benchmarks/scaling.py
    python benchmarks/scaling.py --rounds 5 --iterations 20 --num-envs 64

Weak scaling: each process has the same number of environments, one thread for everything and its own core; the
efficiency of two is their steps/s together over twice those of one. A round runs one process, two independent processes
at the same time, and two that share a training, one after another, so that a busy machine slows all. The two
independent processes show what the machine loses when both cores work (clock, caches, memory); the loss beyond that is
the cost of sharing.

The model is a ring all-reduce: with W ranks, an operation of n bytes takes 2 (W - 1) (latency + n / (W bandwidth)). The
waiting for the slowest rank is the measured one, once for each doubling of W. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from embodichain.agents.rl.distributed import TorchProcessGroup, get_process_group, join_process_group
from embodichain.agents.rl.train import train_from_config
from embodichain.agents.rl.trainer.trainer import Trainer

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "configs/agents/rl/push_cube/train_config_quickstart.json"
KINDS = {"one": (1, False), "two apart": (2, False), "two together": (2, True)}  # processes; whether they share
NETWORKS = {"25 Gbit/s Ethernet": (30e-6, 25e9 / 8), "200 Gbit/s InfiniBand": (5e-6, 200e9 / 8)}  # s a message; bytes/s
RANKS = (2, 4, 8, 16, 32, 64)


def main() -> None:
    """Run the benchmark, or one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=str(CONFIG))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=12)
    parser.add_argument("--num-envs", type=int, default=64, help="of each process")
    parser.add_argument("--worker", choices=("train", "probe"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(probe() if args.worker == "probe" else train(args)))
        return
    runs: dict[str, list[list[dict[str, Any]]]] = {kind: [] for kind in KINDS}
    for _ in range(args.rounds):
        for kind, (count, is_shared) in KINDS.items():
            runs[kind].append(start(count, is_shared, ["--worker", "train", *sys.argv[1:]]))
    result = summarise(runs, start(2, True, ["--worker", "probe"])[0])
    report(result)
    print(json.dumps(result))


def start(count: int, is_shared: bool, arguments: list[str]) -> list[dict[str, Any]]:
    """Run ``count`` processes at once, each on its own core; return their outputs, by rank."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    cores, processes = sorted(os.sched_getaffinity(0)), []
    for rank in range(count):
        variables = {"OMP_NUM_THREADS": "1", "MUJOCO_GL": os.environ.get("MUJOCO_GL", "egl"), "PYTHONPATH": str(ROOT)}
        if is_shared:
            names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
            variables |= dict(zip(names, map(str, (rank, rank, count, 1, "127.0.0.1", port)), strict=True))
        core = cores[rank % len(cores)]
        processes.append(
            subprocess.Popen(
                [sys.executable, __file__, *arguments],
                env=dict(os.environ) | variables,
                stdout=subprocess.PIPE,
                text=True,
                preexec_fn=lambda core=core: os.sched_setaffinity(0, {core}),
            )
        )
    lines = [process.communicate()[0].splitlines() for process in processes]
    return [json.loads(line[-1]) for line in lines]


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Train, and return the median of the iterations' times and what the last one shared; the first third warms up."""
    seconds: list[float] = []
    shared: list[int] = []
    iterate = Trainer._iterate
    parameters = 0

    def timed(trainer: Trainer) -> dict[str, float]:
        nonlocal parameters
        before, begun = getattr(get_process_group(), "bytes_shared", 0), time.perf_counter()
        result = iterate(trainer)
        seconds.append(time.perf_counter() - begun)
        shared.append(getattr(get_process_group(), "bytes_shared", 0) - before)
        parameters = sum(p.numel() * p.element_size() for p in trainer.policy.parameters())
        return result

    Trainer._iterate = timed  # type: ignore[method-assign]
    config = str(Path(args.config).resolve())
    changes = {"iterations": args.iterations, "num_envs": args.num_envs, "enable_eval": "false", "device": "cpu"}
    os.chdir(ROOT)  # the shipped configs' paths are relative to it
    is_shared = "RANK" in os.environ
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "configs").symlink_to(ROOT / "configs")
        os.chdir(folder)
        overrides = [f"trainer.{name}={value}" for name, value in changes.items()]
        summary = train_from_config(config, is_shared, overrides)
        os.chdir(ROOT)
    own_steps = summary["env_steps"] / args.iterations / (2 if is_shared else 1)
    median = statistics.median(seconds[args.iterations // 3 :])
    return {"seconds": median, "steps_per_second": own_steps / median, "bytes": shared[-1], "gradient": parameters}


def probe() -> dict[str, float]:
    """Return how long an all-reduce takes here, of 4 bytes and of a megabyte, s."""
    with join_process_group() as ranks:
        return {"4 B": time_of_sum(ranks, 1), "1 MB": time_of_sum(ranks, 2**18)}


def time_of_sum(ranks: TorchProcessGroup, size: int) -> float:
    """Return the median time of 200 sums, s."""
    x, times = torch.zeros(size), []
    for _ in range(200):
        begun = time.perf_counter()
        ranks.sum(x)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def summarise(runs: dict[str, list[list[dict[str, Any]]]], sums: dict[str, float]) -> dict[str, Any]:
    """Return the results of all rounds."""
    speed = {kind: [sum(r["steps_per_second"] for r in ranks) for ranks in rounds] for kind, rounds in runs.items()}

    def ratios(of: str, to: str, factor: float) -> list[float]:
        return sorted(round(a / (factor * b), 3) for a, b in zip(speed[of], speed[to], strict=True))

    last, one = runs["two together"][-1][0], statistics.median(r[0]["seconds"] for r in runs["one"])
    sharing = ratios("two together", "two apart", 1)
    # The loss of two beyond the operations themselves: the waiting for the slower one.
    steps = max(1, round(last["bytes"] / last["gradient"]))
    operations = steps * (sums["4 B"] + (sums["1 MB"] - sums["4 B"]) * last["gradient"] / 2**20)
    waiting = max(0.0, one * (1 / statistics.median(sharing) - 1) - operations)
    return {
        "steps_per_second": {kind: round(statistics.median(values)) for kind, values in speed.items()},
        "efficiency": ratios("two together", "one", 2),
        "efficiency_apart": ratios("two apart", "one", 2),
        "together_over_apart": sharing,
        "gradient_bytes": last["gradient"],
        "bytes_per_update": last["bytes"],
        "gradient_steps": steps,
        "all_reduce_ms": {name: round(1e3 * value, 3) for name, value in sums.items()},
        "iteration_seconds": round(one, 3),
        "operations_seconds": round(operations, 4),
        "waiting_seconds": round(waiting, 4),
        "model": {name: model(one, waiting, steps, last["gradient"], *link) for name, link in NETWORKS.items()},
        "load": round(os.getloadavg()[0], 1),
    }


def model(
    iteration: float, waiting: float, steps: int, size: int, latency: float, bandwidth: float
) -> dict[str, float]:
    """Return the weak-scaling efficiency for each number of ranks, as the module's docstring says."""
    return {
        str(ranks): round(
            iteration
            / (
                iteration
                + waiting * math.log2(ranks)
                + steps * 2 * (ranks - 1) * (latency + size / (ranks * bandwidth))
            ),
            3,
        )
        for ranks in RANKS
    }


def report(result: dict[str, Any]) -> None:
    """Print the results."""
    for kind, value in result["steps_per_second"].items():
        print(f"{kind:14} {value:8,} steps/s")
    for name in ("efficiency", "efficiency_apart", "together_over_apart"):
        values = result[name]
        print(f"{name:20} {statistics.median(values):.1%}  (rounds: {', '.join(f'{v:.1%}' for v in values)})")
    print(f"an update shares {result['bytes_per_update'] / 1e6:.1f} MB in {result['gradient_steps']} gradient steps")
    print(f"all-reduce here: {result['all_reduce_ms']} ms")
    for name, efficiencies in result["model"].items():
        print(f"{name:24}" + "  ".join(f"{ranks}: {value:.1%}" for ranks, value in efficiencies.items()))


if __name__ == "__main__":
    main()
