"""The benchmark of asynchronous collection with real work: its times, what is stored, and its cases."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks import child_training
from benchmarks.async_real import CASES, CONFIG, case_overrides, iteration_seconds, main, points_of
from embodichain.agents.rl.run_config import load_run_config

# Iterations of 2, 3 and 4 s; the second and the third end with an evaluation of 10 s, the last one of 20 s.
LINES = [
    {"step": 8, "wall_time": 2.0, "time/collect_seconds": 1.0, "time/update_seconds": 1.0},
    {"step": 16, "wall_time": 15.0, "time/collect_seconds": 1.0, "time/update_seconds": 2.0}
    | {"time/eval_seconds": 10.0, "eval/success_rate": 0.5},
    {"step": 24, "wall_time": 39.0, "time/collect_seconds": 2.0, "time/update_seconds": 2.0}
    | {"time/eval_seconds": 20.0, "eval/success_rate": 0.9},
]


@pytest.fixture(autouse=True)
def _keeps_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", lambda *args: None)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def test_time_is_without_the_evaluations() -> None:
    points = points_of(LINES)
    assert [(point["step"], point["seconds"]) for point in points] == [(16, 5.0), (24, 9.0)]
    assert iteration_seconds(LINES) == {"iteration": 3.5, "collect": 1.5, "update": 2.0}


@pytest.mark.parametrize("case", CASES)
def test_cases_are_configs_that_can_be_trained(case: str) -> None:
    run = load_run_config(CONFIG, [*case_overrides(case, 4), "policy.vla_config.model_path=null"])
    collection = run.trainer.collection()
    assert (collection is None) == case.startswith("sync")
    assert run.trainer.torch_threads == (2 if case == "thread-half" else None)
    assert case != "process" or (collection is not None and collection.backend == "process")


def test_only_what_is_missing_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[tuple[str, str]] = []

    def train(config: str, overrides: list[str], module: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        (seed,) = [each for each in overrides if each.startswith("trainer.seed=")]
        trained.append((seed, "async" if any("max_staleness" in each for each in overrides) else module))
        again = [*LINES, LINES[-1] | {"step": 32, "wall_time": 43.0, "time/eval_seconds": 0.0}]
        return (again if seed.endswith("1") else LINES), {}

    monkeypatch.setattr(child_training, "train", train)
    given = ["--results", str(tmp_path / "r.jsonl"), "--success", "0.9", "--cores", "1"]
    main([*given, "--cases", "sync", "sync-threads", "--seeds", "1"])
    assert [module for _, module in trained] == ["embodichain.agents.rl.train", "benchmarks.train_with_threads"]
    trained.clear()
    main([*given, "--cases", "sync", "thread", "--seeds", "1", "2"])
    assert trained == [
        ("trainer.seed=1", "async"),
        ("trainer.seed=2", "embodichain.agents.rl.train"),
        ("trainer.seed=2", "async"),
    ]
    sync, thread = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    # seed 1 is twice at 0.9: at 9 s and, 4 s later, again; seed 2 once
    assert sync["seconds"] == thread["seconds"] == [9.0, None]
    assert sync["steps"] == [24, None]
    trained.clear()
    main([*given, "--cases", "sync", "--seeds", "1", "--every", "7"])  # other settings
    assert len(trained) == 1
