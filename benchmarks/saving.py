"""Cost of saving: the share of a training's wall time for copying the state and writing checkpoints.

    python benchmarks/saving.py configs/agents/rl/push_cube/train_config.json trainer.iterations=4

The state is copied after every iteration; the file is written every ``trainer.save_freq`` steps, and after the last
iteration.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from embodichain.agents.rl.train import train_from_config
from embodichain.agents.rl.trainer import trainer as trainer_module
from embodichain.agents.rl.trainer.saving import Saver
from embodichain.agents.rl.trainer.trainer import Trainer

SPENT = {"copy": 0.0, "write": 0.0, "train": 0.0}
COUNTS = dict.fromkeys(SPENT, 0)


def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Add up the wall time of a call under a name."""

    def inner(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            SPENT[name] += time.perf_counter() - start
            COUNTS[name] += 1

    return inner


def main() -> None:
    """Run the benchmark."""
    config, *overrides = sys.argv[1:]
    config = str(Path(config).resolve())
    trainer_module.freeze = timed("copy", trainer_module.freeze)  # type: ignore[attr-defined]
    for owner, name, method in ((Saver, "write", "save"), (Trainer, "train", "train")):
        setattr(owner, method, timed(name, getattr(owner, method)))
    folder = Path.cwd()
    with tempfile.TemporaryDirectory(dir=folder) as place:  # on the disk of the working directory
        if (folder / "configs").exists():  # a training config may name its environment config by a path from here
            (Path(place) / "configs").symlink_to(folder / "configs")
        os.chdir(place)
        try:
            summary = train_from_config(config, overrides=overrides)
            size = round(max(file.stat().st_size for file in Path(place).glob("outputs/*/checkpoints/*.pt")) / 1024)
        finally:
            os.chdir(folder)
    share = (SPENT["copy"] + SPENT["write"]) / SPENT["train"]
    print(f"{'':8} {'calls':>6} {'seconds':>9} {'share':>7}")
    for name, seconds in SPENT.items():
        print(f"{name:8} {COUNTS[name]:>6} {seconds:>9.3f} {seconds / SPENT['train']:>7.2%}")
    print(f"saving: {share:.2%} of the wall time; a checkpoint has about {size} kB")
    metrics = {"seconds": SPENT, "calls": COUNTS, "share": share, "kilobytes": size}
    print(json.dumps({"steps": summary["env_steps"], **metrics}))


if __name__ == "__main__":
    main()
