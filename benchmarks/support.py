"""What was tried on which system: trains shipped configs, and writes docs/support.md from all that is recorded.

python -m benchmarks.support                                        two small iterations of every shipped config
python -m benchmarks.support --whole push_cube/train_config_quickstart.json
python -m benchmarks.support --whole --sim-device cuda:0            on a GPU
python -m benchmarks.support --page                                 trains nothing

Each training is a process in a folder of its own, without videos. Its result is appended to ``--results`` with the
commit and the date, and the page shows the newest of each config, physics and system; a training to the end counts more
than a short one.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ROOT / "configs/agents/rl"
RESULTS = ROOT / "benchmarks/results/support.jsonl"
PAGE = ROOT / "docs/support.md"

Record = dict[str, Any]
"""A training: ``config``, ``algorithm``, ``physics``, ``system``, ``whole``, ``metric``, ``value``, ``bar``,
``env_steps``, ``seconds``, ``commit`` and ``date``."""

SUCCESS_BAR = 0.9
BARS: dict[str, tuple[str, float]] = {
    "g1_flat/train_config_quickstart.json": ("success_rate", 0.75),
    "gymnasium/pendulum/train_config_ppo.json": ("avg_reward", -200.0),
    "gymnasium/pendulum/train_config_sac.json": ("avg_reward", -200.0),
    "gymnasium/half_cheetah/train_config_ppo.json": ("avg_reward", 1000.0),
    "gymnasium/half_cheetah_native/train_config_ppo.json": ("avg_reward", 1000.0),
    "gymnasium/hopper_native/train_config_ppo.json": ("avg_reward", 500.0),
    "gymnasium/walker2d_native/train_config_ppo.json": ("avg_reward", 500.0),
}
"""What a config is to reach, where that is not a success rate of ``SUCCESS_BAR``."""

SHORT = {
    "trainer.num_envs": 4,
    "trainer.iterations": 2,
    "trainer.buffer_size": 8,
    "trainer.num_eval_envs": 2,
    "trainer.num_eval_episodes": 2,
    "algorithm.cfg.batch_size": 16,
}
PHYSICS = {"cpu": "CPU", "warp:cpu": "Warp on the CPU", "cuda": "Warp on a GPU"}
SYSTEMS = ("Linux x86_64", "Linux aarch64", "Darwin arm64", "Windows AMD64")


def shipped_configs() -> list[str]:
    """Return the shipped training configs, from ``CONFIGS``."""
    return sorted(str(path.relative_to(CONFIGS)) for path in CONFIGS.glob("**/train_config*.json"))


def overrides_of(config: Mapping[str, Any], whole: bool, sim_device: str) -> list[str]:
    """Return what changes in a config for its trial."""
    changed: dict[str, Any] = {"trainer.events.eval": "{}", "trainer.enable_eval": "true"}
    if sim_device.startswith("cuda"):
        changed["trainer.device"] = sim_device
    else:
        changed |= {"trainer.device": "cpu", "trainer.sim_device": sim_device}
    if not whole:
        changed |= SHORT
        cfg = config["algorithm"].get("cfg", {})
        if "group_size" in cfg:
            changed["algorithm.cfg.group_size"] = 2
        if config["algorithm"]["name"] == "sac":
            changed |= {"algorithm.cfg.learning_starts": 16, "algorithm.cfg.replay_capacity": 1000}
        if "demonstrations" in cfg:
            changed["algorithm.cfg.num_demonstrations"] = 2
        if config["policy"]["name"] == "vla":
            # Its model is another command's, and chooses five actions at a time.
            changed |= {
                "policy.vla_config.model_path": "null",
                "trainer.buffer_size": 10,
                "algorithm.cfg.batch_size": 4,
            }
    return [f"{path}={value}" for path, value in changed.items()]


def train(name: str, whole: bool, sim_device: str) -> Record:
    """Train a shipped config in a process, and return its record.

    Raises:
        SystemExit: it failed; the message has its output.
    """
    path = CONFIGS / name
    config = json.loads(path.read_text(encoding="utf-8"))
    arguments = ["--config", str(path), *overrides_of(config, whole, sim_device)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "embodichain.agents.rl.train", *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        (file,) = Path(folder).glob("outputs/*/summary.json")
        summary = json.loads(file.read_text(encoding="utf-8"))
    return record_of(name, config, whole, sim_device, summary)


def record_of(name: str, config: Mapping[str, Any], whole: bool, sim_device: str, summary: Mapping[str, Any]) -> Record:
    """Return the record of a training from its ``summary.json``."""
    metric, bar = BARS.get(name, ("success_rate", SUCCESS_BAR))
    return {
        "config": name,
        "algorithm": config["algorithm"]["name"],
        "physics": sim_device.partition(":")[0] if sim_device.startswith("cuda") else sim_device,
        "system": f"{platform.system()} {platform.machine()}",
        "whole": whole,
        "metric": metric,
        "value": summary[metric],
        "bar": bar,
        "env_steps": summary["env_steps"],
        "seconds": summary["train_seconds"],
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
    }


def commit() -> str:
    """Return the short name of the commit, with ``+`` if files have changed since, but for what this program writes."""
    written = [f":(exclude){path.relative_to(ROOT).as_posix()}" for path in (RESULTS, PAGE)]
    name = _git("rev-parse", "--short=7", "HEAD")
    return f"{name}+" if _git("status", "--porcelain", "--untracked-files=no", "--", ".", *written) else name


def _git(*arguments: str) -> str:
    call = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()


def read_records(results: Path) -> list[Record]:
    """Return the records of a file, oldest first."""
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()] if results.exists() else []


def newest(records: Sequence[Record]) -> dict[tuple[str, str, str], Record]:
    """Return what counts for each (config, physics, system): the newest training to the end, else the newest short."""
    found: dict[tuple[str, str, str], Record] = {}
    for record in records:
        key = record["config"], record["physics"], record["system"]
        if record["whole"] or key not in found or not found[key]["whole"]:
            found[key] = record
    return found


def reached(record: Record) -> bool:
    """Return whether a training was whole, and reached its bar."""
    return bool(record["whole"]) and record["value"] is not None and record["value"] >= record["bar"]


def cell(record: Record | None, physics: str) -> str:
    """Return what the first table says of a config."""
    if record is None:
        return "never run" if physics == "cuda" else "untested"
    if not record["whole"]:
        return "runs"
    return "**trained**" if reached(record) else "below its bar"


def page_of(records: Sequence[Record]) -> str:
    """Return docs/support.md."""
    found, configs = newest(records), shipped_configs()
    systems = sorted({*SYSTEMS, *(system for _, _, system in found)}, key=lambda name: (name != SYSTEMS[0], name))
    home, *others = systems
    lines = [_HEAD, f"| config | algorithm | {' | '.join(PHYSICS.values())} | {' | '.join(others)} |"]
    lines.append("| --- " * (2 + len(PHYSICS) + len(others)) + "|")
    for name in configs:
        algorithm = json.loads((CONFIGS / name).read_text(encoding="utf-8"))["algorithm"]["name"]
        cells = [cell(found.get((name, physics, home)), physics) for physics in PHYSICS]
        cells += [cell(found.get((name, "cpu", system)), "cpu") for system in others]
        lines.append(f"| {name} | {algorithm} | {' | '.join(cells)} |")
    lines += ["", "## Trained to the end", ""]
    lines.append("| config | physics, system | reached | its bar | environment steps | training | commit | date |")
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
    whole = [record for (name, _, _), record in sorted(found.items()) if record["whole"] and name in configs]
    lines += [_detail(record) for record in whole]
    return "\n".join(lines) + "\n"


def _detail(record: Record) -> str:
    is_rate = record["metric"] == "success_rate"
    value, bar = ((f"{100 * x:.1f} %" if is_rate else f"return {x:,.0f}") for x in (record["value"], record["bar"]))
    where = f"{PHYSICS[record['physics']]}, {record['system']}"
    return (
        f"| {record['config']} | {where} | {value} | {bar} | {record['env_steps']:,} | {record['seconds']:,.0f} s "
        f"| {record['commit']} | {record['date']} |"
    )


_HEAD = """# What was tried, and where

Written by `python -m benchmarks.support --page` from `benchmarks/results/support.jsonl`; do not edit. Each row is a
shipped config below `configs/agents/rl`.

- **trained**: the whole config was trained once, and its last evaluation reached the bar: 90 % success, or what the
  second table says. Results of more trainings and seeds are in [tasks.md](tasks.md), but not with their commit.
- **runs**: two small iterations with an evaluation ended without an error; a whole training was not recorded here. The
  tests do this for every config, on Linux with Python 3.11.
- **untested**, **never run**: not tried. No GPU, no Mac, no Windows and no ARM processor was at hand yet.

Seconds are those of machines that other programs used as well; docs/results.md has timings.
The columns of physics are of Linux x86_64. `scripts/gpu_check.sh` measures what a GPU can do, and fills its column.
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Train configs, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="*", metavar="CONFIG", help="below configs/agents/rl; default: all")
    parser.add_argument("--whole", action="store_true", help="train to the end")
    parser.add_argument("--sim-device", default="cpu", help="cpu, warp:cpu or cuda:0")
    parser.add_argument("--page", action="store_true", help="write the page and train nothing")
    parser.add_argument("--results", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    if unknown := sorted(set(args.configs) - set(shipped_configs())):
        parser.error(f"{unknown[0]}: no shipped config; there are {', '.join(shipped_configs())}")
    trained: list[Record] = []
    for name in [] if args.page else args.configs or shipped_configs():
        record = train(name, args.whole, args.sim_device)
        trained.append(record)
        with args.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        print(f"{name:55} {args.sim_device:9} {cell(record, ''):14} {record['seconds']:8.1f} s", flush=True)
    PAGE.write_text(page_of(read_records(args.results)), encoding="utf-8")
    print(json.dumps({"benchmark": "support", "records": trained}))


if __name__ == "__main__":
    main()
