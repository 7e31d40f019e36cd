"""Headlines: shipped configs trained with fresh seeds, and evaluated on episodes that no training saw.

    python -m benchmarks.seeds push_cube --seeds 8001 8002 8003
    python -m benchmarks.seeds "push_cube --processes 2 trainer.num_envs=32" --seeds 8001 8002 8003
    python -m benchmarks.seeds --tables

Each training is a separate process, as ``embodichain train`` starts it, without evaluations and videos; then
``embodichain eval`` plays ``--episodes`` episodes. A row for each seed is appended to
``benchmarks/results/headlines.jsonl``, with the commit, the machine and a digest of the config's files. ``--tables``
writes the median and the worst of the rows into README.md (of five seeds or more, without SAC's) and the pages of
docs/, between ``<!-- headlines -->`` and ``<!-- end -->``; rows of a config that has changed since are not listed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from embodichain.agents.rl.config.named import find_config
from embodichain.agents.rl.trainer.evaluation import AT_END
from embodichain.utils import doors
from embodichain.utils.device import describe_machine
from embodichain.utils.utility import load_config_file

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/headlines.jsonl"
README = ROOT / "README.md"
PAGES = sorted(ROOT.glob("docs/*.md"))
_SEEDS = 5  # of a config that README.md lists, at least
MARKS = re.compile(r"(<!-- headlines -->\n).*?(<!-- end -->)", re.DOTALL)

Row = dict[str, Any]


def digest_of(config: Path) -> str:
    """Return a digest of a training config, without cameras, and of the environment config that it names."""
    train = load_config_file(config)
    events = train["trainer"].pop("events", {})
    if "train" in events:  # "eval" has cameras of videos, which these trainings do not record
        train["trainer"]["events"] = events["train"]
    named = train["trainer"]["gym_config"]
    env = load_config_file(doors.shipped_path(Path(named))) if isinstance(named, str) else None
    return hashlib.sha256(json.dumps([train, env], sort_keys=True).encode()).hexdigest()[:12]


def train_and_evaluate(command: str, seed: int, episodes: int) -> Row:
    """Train by ``embodichain train COMMAND`` with one seed, evaluate the last checkpoint, return the row's numbers."""
    with TemporaryDirectory() as folder:
        overrides = [f"trainer.seed={seed}", "trainer.enable_eval=false", "trainer.events.eval={}"]
        run(folder, "train", *shlex.split(command), *overrides)
        (summary,) = Path(folder).glob("outputs/*/summary.json")
        trained = json.loads(summary.read_text(encoding="utf-8"))
        evaluated = json.loads(run(folder, "eval", "latest", "--episodes", str(episodes), "--json"))
    return {
        "success_rate": evaluated["success_rate"],
        "return": evaluated["figures"]["return"]["mean"],
        "metrics": {name: mean for name, mean in evaluated["metrics"].items() if not name.endswith(AT_END)},
        "episodes": episodes,
        "env_steps": trained["env_steps"],
        "train_seconds": round(trained["train_seconds"], 1),
    }


def run(folder: str, *words: str) -> str:
    """Run a subcommand in a folder and return what it printed."""
    command = [sys.executable, "-m", "embodichain.cli", *words]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]  # packages of extras may be elsewhere
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def current_rows(results: Path) -> dict[str, list[Row]]:
    """Return the rows of configs that have not changed since, by the row's ``config``; of a seed the last row."""
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    rows: dict[str, dict[int, Row]] = {}
    found = [json.loads(line) for line in lines]
    digests = {name: digest_of(find_config(name.split()[0])) for name in dict.fromkeys(row["config"] for row in found)}
    for row in found:
        if row["digest"] == digests[row["config"]]:
            rows.setdefault(row["config"], {})[row["seed"]] = row
    return {name: [by_seed[seed] for seed in sorted(by_seed)] for name, by_seed in rows.items()}


def table_of(rows: dict[str, list[Row]]) -> str:
    """Return the table of the configs' rows in Markdown."""
    lines = [
        "| `embodichain train ...` | result, median | worst | seeds | environment steps | training, median |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, found in rows.items():
        errors = [row["metrics"]["velocity_error_xy"] for row in found if "velocity_error_xy" in row.get("metrics", {})]
        rates = [row["success_rate"] for row in found if row["success_rate"] is not None]
        results = errors or rates or [row["return"] for row in found]
        text = "{:.3f} m/s" if errors else "{:.1%}" if rates else "return {:,.0f}"
        median, worst = text.format(statistics.median(results)), text.format((max if errors else min)(results))
        seconds = statistics.median(row["train_seconds"] for row in found)
        lines.append(f"| `{name}` | {median} | {worst} | {len(found)} | {found[0]['env_steps']:,} | {seconds:,.0f} s |")
    return "\n".join(lines) + "\n"


def write_tables(table: str, pages: list[Path]) -> None:
    """Write the table between the marks of the pages that have them."""
    for page in pages:
        text = page.read_text(encoding="utf-8")
        page.write_text(MARKS.sub(lambda found: found[1] + table + found[2], text), encoding="utf-8")


def commit(results: Path) -> str:
    """Return the short hash of the commit, with a ``+`` if tracked files except the results have changed since."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    changes = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True).stdout
    others = [line for line in changes.splitlines() if not line.endswith(results.name)]
    return head.strip() + ("+" if others else "")


def add_rows(results: Path, command: str, seeds: Sequence[int], measure: Callable[[str, int], Row]) -> None:
    """Append a row for each seed to a file, with the numbers that ``measure`` returns.

    Args:
        command: name of a shipped config, and further words for ``embodichain train``, if any.
    """
    digest, machine = digest_of(find_config(command.split()[0])), describe_machine()
    facts = {"config": command, "digest": digest, "commit": commit(results), "date": str(date.today())}
    facts["machine"] = f"{machine['processor']}, {machine['cores']} cores"
    for seed in seeds:
        row = facts | {"seed": seed} | measure(command, seed)
        print(json.dumps(row), flush=True)
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", help="name of a shipped config, and words for `train`, in quotes")
    parser.add_argument("--seeds", type=int, nargs="+", default=[])
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--tables", action="store_true", help="write the tables of README.md and docs/")
    args = parser.parse_args()
    if args.config:
        add_rows(RESULTS, args.config, args.seeds, lambda words, seed: train_and_evaluate(words, seed, args.episodes))
    if args.tables:
        rows = current_rows(RESULTS)
        write_tables(table_of(rows), PAGES)
        headlines = {name: found for name, found in rows.items() if len(found) >= _SEEDS and "/sac" not in name}
        write_tables(table_of(headlines), [README])


if __name__ == "__main__":
    main()
