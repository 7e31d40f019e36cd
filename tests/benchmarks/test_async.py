"""The parts of the benchmark of collection with sleeps, without the waiting."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

benchmark = import_module("benchmarks.async")  # its name is a keyword


@pytest.mark.parametrize("case", benchmark.CASES, ids=lambda case: case.name)
def test_cases_run(case: Any) -> None:
    row = benchmark.run(replace(case, infer=0.001, step=0.001, update=0.001), iterations=1)
    assert row["case"] == case.name
    assert row["speedup"] > 0


def test_work_in_python_is_collected_in_threads_and_in_another_process() -> None:
    times = benchmark.lock_holding(iterations=1, steps=2, seconds=0.001)
    assert set(times) == {"synchronous", "thread", "process"}


def test_failed_step_reaches_the_learner() -> None:
    assert benchmark.error_latency(repeats=1)["max_ms"] > 0
