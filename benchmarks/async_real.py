"""Asynchronous collection with real work: time to a success rate, with equal cores and without any sleep.

    embodichain bc configs/agents/rl/push_colored_cube/bc_config.json
    python -m benchmarks.async_real trainer.iterations=60 --model outputs/push_colored_cube_bc --success 0.85 \\
        --seeds 1 2 3 4 5

Each training is the shipped command in a separate process, one after the other, on the same ``--cores`` cores of the
machine: PushColoredCubeRL with rendered images, the inference of TinyVLA and PPO's updates, or what else ``--config``
names. ``key=value`` are overrides for all of them. The cases (``--cases``):

- ``sync``: as it is shipped; torch computes with one thread while it collects, and physics and rendering use all cores;
- ``sync-threads``: torch may use all cores while it collects, too;
- ``thread``, ``process``: asynchronous, max_staleness 1; environments in a thread, or in a separate process;
- ``thread-half``: ``thread``, with updates on half of the cores, so that the other half collects.

After every ``--every`` iterations the policy is evaluated on the same ``--episodes`` episodes, during which collection
waits. Time is wall time without the evaluations. Success is reached at the first of two evaluations in a row at
``--success`` or above. *collect* is how long the learner waits for a rollout, which is all of its collection where that
is synchronous.

Results are appended to ``--results``, a JSON line each; what is there with equal settings is not trained again. Prints
a table with the median (lowest-highest) of the seeds, and last one line of JSON. Timings need a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import child_training
from benchmarks.async_learning import spread
from benchmarks.time_to_success import time_to

Record = dict[str, Any]

CONFIG = "configs/agents/rl/push_colored_cube/train_config.json"
CASES = ("sync", "sync-threads", "thread", "thread-half", "process")


def case_overrides(case: str, cores: int) -> list[str]:
    """Return what a case changes in the config."""
    if case.startswith("sync"):
        return ["trainer.asynchronous=null"]
    backend = "process" if case == "process" else "thread"
    overrides = [f'trainer.asynchronous={{"max_staleness": 1, "backend": "{backend}"}}']
    return [*overrides, f"trainer.torch_threads={max(1, cores // 2)}"] if case == "thread-half" else overrides


def points_of(lines: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """Return the evaluations of a training: steps, success, and seconds without the evaluations until then.

    Args:
        lines: of its ``metrics.jsonl``.
    """
    points, evaluating = [], 0.0
    for line in lines:
        evaluating += line.get("time/eval_seconds", 0.0)
        if "eval/success_rate" in line:
            seconds = round(line["wall_time"] - evaluating, 3)
            points.append({"step": line["step"], "seconds": seconds, "success": line["eval/success_rate"]})
    return points


def iteration_seconds(lines: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median seconds of an iteration without evaluations, and of its two parts; the first does not count."""
    whole = [b["wall_time"] - a["wall_time"] - b.get("time/eval_seconds", 0.0) for a, b in pairwise(lines)]
    parts = {name: [line[f"time/{name}_seconds"] for line in lines[1:]] for name in ("collect", "update")}
    return {name: round(statistics.median(x), 4) for name, x in {"iteration": whole, **parts}.items()}


def settings_of(args: argparse.Namespace) -> Record:
    """Return what equal results must have in common."""
    names = ("config", "model", "cores", "every", "episodes", "overrides")
    return {name: getattr(args, name) for name in names}


def run_case(case: str, seed: int, args: argparse.Namespace) -> Record:
    """Train once and return the record."""
    overrides = [
        *(f"trainer.{key}" for key in ("enable_eval=true", "save_freq=1000000 it", "device=cpu", f"seed={seed}")),
        f"trainer.eval_freq={args.every} it",
        f"trainer.num_eval_episodes={args.episodes}",
        *([] if args.model is None else [f"policy.vla_config.model_path={Path(args.model).absolute()}"]),
        *case_overrides(case, args.cores),
        *args.overrides,
    ]
    module = "benchmarks.train_with_threads" if case == "sync-threads" else "embodichain.agents.rl.train"
    lines, _ = child_training.train(args.config, overrides, module)
    found = {"points": points_of(lines), "seconds": iteration_seconds(lines)}
    return {"case": case, "seed": seed, "settings": settings_of(args), **found}


def read_records(path: Path, settings: Record) -> dict[tuple[str, int], Record]:
    """Return the stored records with equal settings by case and seed."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    records = [record for record in map(json.loads, lines) if record["settings"] == settings]
    return {(record["case"], record["seed"]): record for record in records}


def finite(value: float) -> float | None:
    """Return None for what was never reached."""
    return value if math.isfinite(value) else None


def summarize(records: dict[tuple[str, int], Record], success: float) -> list[Record]:
    """Print the table and return its rows."""
    print(f"{'':14}{f's until {success:.0%}':>22}{'steps until then':>30}{'iteration':>11}{'collect':>9}{'update':>8}")
    rows = []
    for case in dict.fromkeys(case for case, _ in records):
        runs = [record for (name, _), record in sorted(records.items()) if name == case]
        reached = [time_to(record["points"], success) for record in runs]
        steps, seconds = ([finite(x) for x in column] for column in zip(*reached, strict=True))
        parts = {name: statistics.median(record["seconds"][name] for record in runs) for name in runs[0]["seconds"]}
        shown = "".join(
            f"{parts[name]:>{width}.2f}" for name, width in (("iteration", 11), ("collect", 9), ("update", 8))
        )
        print(f"{case:14}{spread(seconds):>22}{spread(steps):>30}{shown}")
        seeds = [record["seed"] for record in runs]
        rows.append({"case": case, "seeds": seeds, "seconds": seconds, "steps": steps, "medians": parts})
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=CONFIG, help="training config (default: %(default)s)")
    parser.add_argument("--model", metavar="FOLDER", help="policy.vla_config.model_path: the clone to continue from")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=CASES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--success", type=float, default=0.85)
    parser.add_argument("--every", type=int, default=5, metavar="ITERATIONS")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--results", type=Path, default=Path("outputs/async_real.jsonl"))
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    args = parser.parse_args(argv)
    available = sorted(os.sched_getaffinity(0))
    if len(available) < args.cores:
        parser.error(f"--cores {args.cores}: there are {len(available)}")
    os.sched_setaffinity(0, available[: args.cores])  # the trainings inherit both
    os.environ["OMP_NUM_THREADS"] = str(args.cores)
    args.results.parent.mkdir(parents=True, exist_ok=True)
    stored = read_records(args.results, settings_of(args))
    records = {}
    for seed in args.seeds:  # case by case within a seed, so that a slower hour of the machine meets all cases
        for case in args.cases:
            record = stored.get((case, seed))
            if record is None:
                record = run_case(case, seed, args)
                with args.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                print(f"{case}, seed {seed}: {record['points'][-1]}", flush=True)
            records[case, seed] = record
    rows = summarize(records, args.success)
    print(json.dumps({"benchmark": "async_real", "success": args.success, **settings_of(args), "rows": rows}))


if __name__ == "__main__":
    main()
