"""Behaviour cloning, then reinforcement learning, with several seeds: success after each, on the same episodes.

python -m benchmarks.vla configs/agents/rl/push_colored_cube/bc_config.json --seeds 11 12 13 14 15 16 17 18 --jobs 2

For each seed `embodichain bc` creates a model, and the training that its config names continues from it. Both evaluate
on the same set of episodes. `--jobs` seeds run at a time and share the cores. Models go to `--folder`, runs to
`outputs`; each finished seed is a line of `--results`, and is not made again with the same settings.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

Row = dict[str, Any]

# Of Student's t, two-sided 95 %, by the number of seeds.
_QUANTILES = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26, 11: 2.23, 12: 2.20}


def run(arguments: list[str], threads: int) -> tuple[str, float, float]:
    """Run a Python module in a separate process; return what it printed, and its wall and processor seconds."""
    env = os.environ | {"OMP_NUM_THREADS": str(threads)}
    start = time.perf_counter()
    with TemporaryFile("w+", encoding="utf-8") as output:
        process = subprocess.Popen([sys.executable, "-m", *arguments], stdout=output, stderr=subprocess.STDOUT, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{text}")
    return text, round(time.perf_counter() - start, 1), round(usage.ru_utime + usage.ru_stime, 1)


def one_seed(config: Path, seed: int, folder: Path, bc: list[str], train: list[str], threads: int) -> Row:
    """Clone and train with one seed, and return the results."""
    model = folder / f"seed_{seed}"
    command = ["embodichain.cli", "bc", str(config), "--allow-write", str(folder), f"seed={seed}", f"out={model}"]
    _, bc_seconds, bc_processor = run([*command, *bc], threads)
    cloned = json.loads((model / "bc.json").read_text(encoding="utf-8"))
    path = json.loads(config.read_text(encoding="utf-8"))["train_config"]
    overrides = [f"trainer.seed={seed}", f"policy.vla_config.model_path={model}", f"trainer.torch_threads={threads}"]
    command = ["embodichain.agents.rl.train", "--config", path, *overrides, *train]
    output, rl_seconds, rl_processor = run(command, threads)
    found = re.search(r"^summary\s+(\S+)$", output, re.MULTILINE)
    assert found is not None
    summary = json.loads(Path(found[1]).read_text(encoding="utf-8"))
    return {
        "seed": seed,
        "settings": settings(config, bc, train),
        "warm_start": cloned["success_rate"],
        "after_rl": summary["success_rate"],
        "episodes": summary["episodes"],
        "threads": threads,
        "bc_seconds": bc_seconds,
        "bc_processor_seconds": bc_processor,
        "rl_seconds": rl_seconds,
        "rl_processor_seconds": rl_processor,
        "env_steps": summary["env_steps"],
    }


def settings(config: Path, bc: list[str], train: list[str]) -> dict[str, Any]:
    """Return what a row depends on beside its seed."""
    cloning = json.loads(config.read_text(encoding="utf-8"))
    training = json.loads(Path(cloning["train_config"]).read_text(encoding="utf-8"))
    return {"cloning": cloning, "policy": training["policy"], "algorithm": training["algorithm"], "bc": bc, "rl": train}


def interval(values: list[float]) -> tuple[float, float]:
    """Return the mean's 95 % interval by Student's t over the seeds."""
    mean, count = statistics.mean(values), len(values)
    half = _QUANTILES.get(count, 2.0) * statistics.stdev(values) / math.sqrt(count) if count > 1 else 0.0
    return mean - half, mean + half


def read_rows(path: Path) -> list[Row]:
    """Return the finished seeds of all settings."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def print_table(rows: list[Row]) -> None:
    """Print a line for each seed, the gain, and last all as one line of JSON."""
    titles = ("seed", "cloned", "after RL", "gain", "cloning s", "RL s", "core s", "steps")
    print(" ".join(f"{title:>{width}}" for title, width in zip(titles, (6, 8, 9, 7, 10, 8, 8, 9), strict=True)))
    for row in rows:
        gain = row["after_rl"] - row["warm_start"]
        print(
            f"{row['seed']:>6} {row['warm_start']:>8.1%} {row['after_rl']:>9.1%} {100 * gain:>+7.1f} "
            f"{row['bc_seconds']:>10.0f} {row['rl_seconds']:>8.0f} "
            f"{row['bc_processor_seconds'] + row['rl_processor_seconds']:>8.0f} {row['env_steps']:>9,}"
        )
    result: dict[str, Any] = {
        "benchmark": "vla",
        "runs": [{k: v for k, v in r.items() if k != "settings"} for r in rows],
    }
    for name in ("warm_start", "after_rl"):
        low, high = interval([row[name] for row in rows])
        result[name] = {"mean": statistics.mean(row[name] for row in rows), "interval_95": [low, high]}
    gains = [row["after_rl"] - row["warm_start"] for row in rows]
    low, high = interval(gains)
    result["gain"] = {"mean": statistics.mean(gains), "interval_95": [low, high]}
    print(f"gain {100 * statistics.mean(gains):+.1f} points (95 % interval {100 * low:+.1f} to {100 * high:+.1f})")
    print(json.dumps(result))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path, help="config of embodichain bc")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--jobs", type=int, default=1, help="seeds at a time")
    parser.add_argument("--folder", type=Path, default=Path("outputs/vla_benchmark"))
    parser.add_argument("--results", type=Path, default=Path("outputs/vla_benchmark.jsonl"))
    parser.add_argument("--bc", action="append", default=[], metavar="key=value", help="override of the cloning")
    parser.add_argument("--train", action="append", default=[], metavar="key=value", help="override of the training's")
    args = parser.parse_args()
    asked, threads = settings(args.config, args.bc, args.train), max(1, (os.cpu_count() or 1) // args.jobs)
    args.results.parent.mkdir(parents=True, exist_ok=True)

    def finish(seed: int) -> None:
        row = one_seed(args.config, seed, args.folder, args.bc, args.train, threads)
        with args.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    done = {row["seed"] for row in read_rows(args.results) if row["settings"] == asked}
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(finish, [seed for seed in args.seeds if seed not in done]))
    rows = {row["seed"]: row for row in read_rows(args.results) if row["settings"] == asked}
    print_table([rows[seed] for seed in args.seeds])


if __name__ == "__main__":
    main()
