"""Effect of a second thread, and of spinning instead of sleeping, on the time of an optimizer step.

    python benchmarks/threads.py
    python benchmarks/threads.py --spins 0 2000 --widths 256 --batch-sizes 2048

Between two operations OpenMP's idle threads spin for a while (``GOMP_SPINCOUNT`` checks for work) and then sleep;
waking them takes long. The benchmark times one optimizer step of an actor and a critic (two hidden layers, ELU, Adam)
with one thread and with all cores, for several spin counts, each in a separate process; and, as in a training, with our
own threads, each of which computes all layers for a part of the rows (``models/mlp_by_rows.py``) and does not spin.
Each case runs alone, and beside a process that keeps one core busy. The table has the median in ms; the last line is
JSON. From it are the spin count in ``embodichain/utils/openmp.py`` and the work that is worth a thread in
``agents/rl/trainer/threads.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import torch
from busy import company
from torch import nn

from embodichain.agents.rl.models import MLP
from embodichain.agents.rl.models.mlp_by_rows import RowThreads, mlps_by_rows
from embodichain.utils.threads import torch_threads

DEFAULT_SPINS = 300_000  # libgomp's own

Key = tuple[int, int]


def measure(widths: list[int], batch_sizes: list[int], threads: list[int], repeats: int) -> list[dict[str, Any]]:
    """Time the steps in this process; a row for each width, batch size and number of threads."""
    rows = []
    for width in widths:
        for batch_size in batch_sizes:
            networks = [MLP(50, size, [width, width], "elu") for size in (6, 1)]
            parameters = [p for network in networks for p in network.parameters()]
            optimizer = torch.optim.Adam(parameters, fused=True)
            obs = torch.randn(batch_size, 50)
            for by_rows, count in [(False, count) for count in threads] + [(True, threads[-1])]:
                seconds = []
                with torch_threads(1 if by_rows else count), RowThreads(count) as row_threads:
                    for _ in range(repeats):
                        begun = time.perf_counter()
                        optimizer.zero_grad()
                        if by_rows:
                            outputs = mlps_by_rows(networks, [obs, obs], row_threads)
                        else:
                            outputs = [network(obs) for network in networks]
                        torch.stack([output.square().mean() for output in outputs]).sum().backward()
                        nn.utils.clip_grad_norm_(parameters, 1.0)
                        optimizer.step()
                        seconds.append(time.perf_counter() - begun)
                ms = 1e3 * statistics.median(seconds[repeats // 4 :])
                kind = "rows" if by_rows else str(count)
                rows.append({"width": width, "batch_size": batch_size, "threads": kind, "ms": round(ms, 3)})
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
    print(
        f"{'beside':>7} {'width':>6} {'batch':>6} {'1 thread':>9}",
        *(f"{spins:>8}" for spins in args.spins),
        f"{'by rows':>8}",
    )
    for others in (0, 1):
        found: dict[str, dict[Key, list[float]]] = {str(count): {} for count in threads} | {"rows": {}}
        for spins in args.spins:
            environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": str(spins)}
            with company(others):
                command = [sys.executable, *sys.argv, "--child"]
                measured = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
            for row in measured:
                rows.append({"busy_processes": others, "spins": spins, **row})
                found[row["threads"]].setdefault((row["width"], row["batch_size"]), []).append(row["ms"])
        for (width, batch_size), times in found[str(threads[-1])].items():
            one, by_rows = (statistics.median(found[kind][width, batch_size]) for kind in (str(threads[0]), "rows"))
            columns = (f"{ms:>8.2f}" for ms in (*times, by_rows))
            print(f"{others:>7} {width:>6} {batch_size:>6} {one:>9.2f}", *columns)
    print(json.dumps({"benchmark": "threads", "threads": threads, "rows": rows}))


if __name__ == "__main__":
    main()
