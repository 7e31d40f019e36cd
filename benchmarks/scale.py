"""Time and memory per step, for few and many environments, and short and long rollouts.

    python benchmarks/scale.py
    python benchmarks/scale.py --config configs/agents/rl/reach/train_config.json --sizes 64:64 4096:64

A size is a number of environments and a number of rollout steps. Each size is trained for some iterations in a separate
process, without evaluations; the first iteration is not counted. Times are per environment step, of one rollout's
collection and of its update (the same epochs and minibatches for all sizes, except for rollouts that are smaller than a
minibatch). Memory is the process's peak, and what each environment and each stored step add to it, by least squares
over all sizes. The last line printed is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
from typing import Any

import numpy as np
from child_training import ROOT, train

from embodichain.agents.rl.run_config import load_run_config

CONFIG = "configs/agents/rl/push_cube/train_config_quickstart.json"
SIZES = ["16:64", "64:64", "256:64", "1024:64", "4096:64", "16384:16", "64:16", "64:256", "64:1024"]
STEPS = 60_000  # counted, at least
MOST_ITERATIONS = 12


def measure(config: str, num_envs: int, num_steps: int, batch_size: int) -> dict[str, Any]:
    """Train one size, and return its row."""
    transitions = num_envs * num_steps
    iterations = 1 + min(MOST_ITERATIONS, max(2, -(-STEPS // transitions)))
    overrides = [
        f"trainer.num_envs={num_envs}",
        f"trainer.buffer_size={num_steps}",
        f"trainer.iterations={iterations}",
        f"algorithm.cfg.batch_size={min(batch_size, transitions)}",
        "trainer.enable_eval=false",
    ]
    lines, summary = train(config, overrides)
    row: dict[str, Any] = {"num_envs": num_envs, "num_steps": num_steps, "peak_memory_mb": summary["peak_memory_mb"]}
    for part in ("collect", "update"):
        row[f"{part}_us"] = 1e6 * statistics.median(line[f"time/{part}_seconds"] for line in lines[1:]) / transitions
    return row


def main() -> None:
    """Measure all sizes and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=CONFIG)
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="N:T")
    args = parser.parse_args()
    batch_size = load_run_config(ROOT / args.config).algorithm.batch_size
    print(f"{'envs':>6}{'steps':>7}{'collect us':>12}{'update us':>11}{'steps/s':>10}{'memory MB':>11}")
    rows = []
    for size in args.sizes:
        num_envs, num_steps = (int(part) for part in size.split(":"))
        row = measure(args.config, num_envs, num_steps, batch_size)
        rows.append(row)
        speed = 1e6 / (row["collect_us"] + row["update_us"])
        print(
            f"{num_envs:>6}{num_steps:>7}{row['collect_us']:>12.1f}{row['update_us']:>11.1f}{speed:>10,.0f}"
            f"{row['peak_memory_mb']:>11,.0f}",
            flush=True,
        )
    known = np.array([[1.0, row["num_envs"], row["num_envs"] * row["num_steps"]] for row in rows])
    megabytes = np.array([row["peak_memory_mb"] for row in rows])
    fit, *_ = np.linalg.lstsq(known / megabytes[:, None], np.ones(len(rows)), rcond=None)  # of relative errors
    worst = float(np.abs(known @ fit / megabytes - 1).max())
    print(
        f"memory: {fit[0]:,.0f} MB, {1000 * fit[1]:.1f} kB for each environment and {1000 * fit[2]:.2f} kB for each "
        f"step of the rollout; off by {worst:.0%} at most"
    )
    print(json.dumps({"config": args.config, "rows": rows, "fit_mb": fit.tolist(), "worst": worst}))


if __name__ == "__main__":
    main()
