"""Train a config with several seeds, one after the other, and print the result of each.

python benchmarks/seeds.py configs/agents/rl/push_cube/train_config_quickstart.json --seeds 1 2 3 4 5

Each training is a separate process in the working directory; its run folder stays in ``outputs``.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

COLUMNS = ("success_rate", "train_seconds", "env_steps", "peak_memory_mb")


def train(config: str, seed: int, overrides: list[str]) -> dict[str, float]:
    """Train with one seed and return the run's summary."""
    command = [
        sys.executable,
        "-m",
        "embodichain.agents.rl.train",
        "--config",
        config,
        f"trainer.seed={seed}",
        *overrides,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"^summary\s+(\S+)$", result.stdout, re.MULTILINE)
    if result.returncode or found is None:
        raise SystemExit(f"seed {seed} failed with exit code {result.returncode}:\n{result.stdout}{result.stderr}")
    summary: dict[str, float] = json.loads(Path(found[1]).read_text(encoding="utf-8"))
    return summary


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--override", action="append", default=[], metavar="key=value")
    args = parser.parse_args()
    print(f"{'seed':>6} {'success':>8} {'seconds':>8} {'steps':>10} {'MB':>6}")
    rows = []
    for seed in args.seeds:
        row = train(args.config, seed, args.override)
        rows.append({"seed": seed, **{name: row[name] for name in COLUMNS}})
        print(
            f"{seed:>6} {row['success_rate']:>8.1%} {row['train_seconds']:>8.1f} {row['env_steps']:>10,} "
            f"{row['peak_memory_mb']:>6.0f}",
            flush=True,
        )
    medians = {name: statistics.median(row[name] for row in rows) for name in COLUMNS}
    print(f"{'median':>6} {medians['success_rate']:>8.1%} {medians['train_seconds']:>8.1f}")
    print(json.dumps({"config": args.config, "median": medians, "runs": rows}))


if __name__ == "__main__":
    main()
