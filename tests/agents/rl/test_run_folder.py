from __future__ import annotations

import os
import types
from datetime import datetime
from pathlib import Path

import pytest

from embodichain.agents.rl import run_folder
from embodichain.agents.rl.run_folder import RunFolder


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_run_that_begins_in_the_same_second_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([datetime(2026, 1, 2, 3, 4, second) for second in (5, 5, 5, 6)])
    monkeypatch.setattr(run_folder, "datetime", types.SimpleNamespace(now=lambda: next(clock)))
    monkeypatch.setattr(run_folder, "time", types.SimpleNamespace(sleep=lambda seconds: None))
    names = [RunFolder.create("a").path.name for _ in range(2)]
    assert names == ["a_20260102_030405", "a_20260102_030406"]
    assert sorted(os.listdir("outputs")) == names


def test_folder_has_name_and_time_and_its_subfolders() -> None:
    folder = RunFolder.create("my.exp-1")
    assert folder.path.parent == Path("outputs")
    name, date, time = folder.path.name.rsplit("_", 2)
    assert (name, len(date), len(time), (date + time).isdigit()) == ("my.exp-1", 8, 6, True)
    assert sorted(os.listdir(folder.path)) == ["checkpoints", "logs"]


def test_removing_a_folder_leaves_those_of_other_runs() -> None:
    first, second = RunFolder.create("a"), RunFolder.create("b")
    first.remove()
    assert os.listdir("outputs") == [second.path.name]
    second.remove()
    assert not Path("outputs").exists()
