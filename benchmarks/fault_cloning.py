"""Small behaviour clonings for the test of kills at every file operation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.fault_operations import Kind
from benchmarks.fault_runs import CONFIG, Training, expect, start
from embodichain import cli
from embodichain.utils.utility import load_json

__all__ = ["cloning_kind"]

_SHIPPED = CONFIG.parents[2] / "push_colored_cube"
_MODEL = {"channels": [4, 4, 4], "width": 8, "depth": 1, "heads": 2, "chunk_length": 4}
_OUT = "outputs/model"


def cloning_kind(folder: Path, steps: int) -> Kind:
    """Return clonings of a tiny model that save after every second step and are evaluated at the end.

    Args:
        folder: where their configs are written.
        steps: of each.
    """
    train = load_json(_SHIPPED / "train_config.json")
    train["trainer"]["gym_config"] = str(_SHIPPED / "gym_config.json")
    train["policy"]["vla_config"] |= {"model_path": _OUT, "model_config": _MODEL}
    (folder / "train.json").write_text(json.dumps(train), encoding="utf-8")
    sizes = {"num_episodes": 1, "num_envs": 1, "steps": steps, "batch_size": 4, "save_freq": 2, "num_eval_episodes": 1}
    config = folder / "bc.json"
    config.write_text(json.dumps({"train_config": str(folder / "train.json"), **sizes}), encoding="utf-8")

    def begin(case: Path, prepare: Callable[[], object]) -> Training:
        return start(case, "bc", str(config), prepare=prepare, main=cli.main)

    def go_on(case: Path, prepare: Callable[[], object]) -> Training:
        if list((case / _OUT / "checkpoints").glob("*.pt")):
            return start(case, "bc", "--resume", _OUT, prepare=prepare, main=cli.main)
        return begin(case, prepare)

    return Kind("outputs", begin, go_on, check_cloning)


def check_cloning(case: Path, whole: Path) -> None:
    """Compare a finished cloning with one without faults: the model, its record, and all files."""
    ours, theirs = (folder / _OUT for folder in (case, whole))
    weights = [(run / "model.safetensors").read_bytes() for run in (ours, theirs)]
    expect(weights[0] == weights[1], "the model is another")
    expect(_record(ours) == _record(theirs), f"the record is {_record(ours)}, without faults {_record(theirs)}")
    names = [sorted(path.name for path in [*run.iterdir(), *run.glob("checkpoints/*")]) for run in (ours, theirs)]
    expect(names[0] == names[1], f"the files are {names[0]}, without faults {names[1]}")


def _record(run: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((run / "bc.json").read_text(encoding="utf-8"))
    del record["seconds"]
    return record
