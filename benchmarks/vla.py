"""Behaviour cloning, then reinforcement learning, with several seeds: success after each, on the same episodes.

python benchmarks/vla.py configs/agents/rl/push_colored_cube/bc_config.json --seeds 1 2 3 4 5

For each seed `embodichain bc` creates a model, and the training that its config names continues from it. Both evaluate
on the same set of episodes. Models go to `--folder`, runs to `outputs`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def run(arguments: list[str]) -> str:
    """Run a Python module in a separate process and return what it printed."""
    result = subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def one_seed(config: Path, seed: int, folder: Path, bc: list[str], train: list[str]) -> dict[str, Any]:
    """Clone and train with one seed, and return the results."""
    model = folder / f"seed_{seed}"
    start = time.perf_counter()
    run(["embodichain.cli", "bc", str(config), "--allow-write", str(folder), f"seed={seed}", f"out={model}", *bc])
    bc_seconds = time.perf_counter() - start
    cloned = json.loads((model / "bc.json").read_text(encoding="utf-8"))
    path = json.loads(config.read_text(encoding="utf-8"))["train_config"]
    start = time.perf_counter()
    overrides = [f"trainer.seed={seed}", f"policy.vla_config.model_path={model}", *train]
    output = run(["embodichain.agents.rl.train", "--config", path, *overrides])
    found = re.search(r"^summary\s+(\S+)$", output, re.MULTILINE)
    assert found is not None
    summary = json.loads(Path(found[1]).read_text(encoding="utf-8"))
    return {
        "seed": seed,
        "warm_start": cloned["success_rate"],
        "after_rl": summary["success_rate"],
        "episodes": summary["episodes"],
        "bc_seconds": round(bc_seconds, 1),
        "rl_seconds": round(time.perf_counter() - start, 1),
        "env_steps": summary["env_steps"],
        "run_folder": summary["run_folder"],
    }


def interval(values: list[float]) -> tuple[float, float]:
    """Return the mean's 95 % interval by Student's t over the seeds."""
    quantiles = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
    mean, count = statistics.mean(values), len(values)
    half = quantiles.get(count, 2.0) * statistics.stdev(values) / math.sqrt(count) if count > 1 else 0.0
    return mean - half, mean + half


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="config of embodichain bc")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--folder", type=Path, default=Path("outputs/vla_benchmark"))
    parser.add_argument("--bc", action="append", default=[], metavar="key=value", help="override of the cloning")
    parser.add_argument("--train", action="append", default=[], metavar="key=value", help="override of the training's")
    args = parser.parse_args()
    print(f"{'seed':>6} {'cloned':>8} {'after RL':>9} {'gain':>7} {'cloning s':>10} {'RL s':>8} {'steps':>9}")
    rows = []
    for seed in args.seeds:
        row = one_seed(args.config, seed, args.folder, args.bc, args.train)
        rows.append(row)
        gain = row["after_rl"] - row["warm_start"]
        print(
            f"{seed:>6} {row['warm_start']:>8.1%} {row['after_rl']:>9.1%} {100 * gain:>+7.1f} "
            f"{row['bc_seconds']:>10.0f} {row['rl_seconds']:>8.0f} {row['env_steps']:>9,}",
            flush=True,
        )
    result: dict[str, Any] = {"config": str(args.config), "runs": rows}
    for name in ("warm_start", "after_rl"):
        low, high = interval([row[name] for row in rows])
        result[name] = {"mean": statistics.mean(row[name] for row in rows), "interval_95": [low, high]}
    gains = [row["after_rl"] - row["warm_start"] for row in rows]
    low, high = interval(gains)
    result["gain"] = {"mean": statistics.mean(gains), "interval_95": [low, high]}
    print(f"gain {100 * statistics.mean(gains):+.1f} points (95 % interval {100 * low:+.1f} to {100 * high:+.1f})")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
