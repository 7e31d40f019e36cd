"""What a second thread, and looking for work instead of sleeping, do for a gradient step.

    python benchmarks/threads.py
    python benchmarks/threads.py --spins 0 2000 --widths 256 --batch-sizes 2048

Between two operations OpenMP's workers look for work for a while (``GOMP_SPINCOUNT`` looks) and then sleep, and to be
woken takes long. One gradient step of an actor and a critic (two hidden layers, ELU, Adam) is timed with one thread and
with all processors, for several numbers of looks, each in a process of its own; by itself, and beside a process that
keeps one processor busy. The table has the median in ms; the last line is JSON. From it are the number of looks in
``embodichain/__init__.py`` and the work that is worth a thread in ``agents/rl/utils/threads.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import torch
from busy import company
from torch import nn

from embodichain.agents.rl.models import MLP

DEFAULT_SPINS = 300_000  # libgomp's own

Key = tuple[int, int]


def measure(widths: list[int], batch_sizes: list[int], threads: list[int], repeats: int) -> list[dict[str, float]]:
    """Time the steps in this process; a row for each width, batch size and number of threads."""
    rows = []
    for width in widths:
        for batch_size in batch_sizes:
            networks = nn.ModuleList([MLP(50, size, [width, width], "elu") for size in (6, 1)])
            optimizer = torch.optim.Adam(networks.parameters(), fused=True)
            obs = torch.randn(batch_size, 50)
            for count in threads:
                torch.set_num_threads(count)
                seconds = []
                for _ in range(repeats):
                    begun = time.perf_counter()
                    optimizer.zero_grad()
                    torch.stack([network(obs).square().mean() for network in networks]).sum().backward()
                    nn.utils.clip_grad_norm_(networks.parameters(), 1.0)
                    optimizer.step()
                    seconds.append(time.perf_counter() - begun)
                ms = 1e3 * statistics.median(seconds[repeats // 4 :])
                rows.append({"width": width, "batch_size": batch_size, "threads": count, "ms": round(ms, 3)})
    return rows


def main() -> None:
    """Run the benchmark, or one of its processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128, 256])
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[512, 1024, 2048])
    parser.add_argument("--spins", type=int, nargs="+", default=[0, 1000, 2000, 5000, DEFAULT_SPINS])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    threads = [1, len(os.sched_getaffinity(0))]
    if args.child:
        print(json.dumps(measure(args.widths, args.batch_sizes, threads, args.repeats)))
        return
    rows = []
    print(f"{'beside':>7} {'width':>6} {'batch':>6} {'1 thread':>9}", *(f"{spins:>8}" for spins in args.spins))
    for others in (0, 1):
        single: dict[Key, list[float]] = {}
        several: dict[Key, list[float]] = {}
        for spins in args.spins:
            environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": str(spins)}
            with company(others):
                command = [sys.executable, *sys.argv, "--child"]
                found = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
            for row in found:
                rows.append({"busy_processes": others, "spins": spins, **row})
                column = single if row["threads"] == 1 else several
                column.setdefault((row["width"], row["batch_size"]), []).append(row["ms"])
        for (width, batch_size), times in several.items():
            one = statistics.median(single[width, batch_size])
            print(f"{others:>7} {width:>6} {batch_size:>6} {one:>9.2f}", *(f"{ms:>8.2f}" for ms in times))
    print(json.dumps({"benchmark": "threads", "threads": threads, "rows": rows}))


if __name__ == "__main__":
    main()
