from __future__ import annotations

import os
import queue
import types
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest

from embodichain.agents.rl import run_folder
from embodichain.agents.rl.run_folder import RunFolder
from embodichain.utils import ConfigError, logger


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_run_that_begins_in_the_same_second_as_another_waits_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_folder_that_cannot_be_made_is_an_error_with_its_place() -> None:
    Path("outputs").write_text("a file", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"output folder {Path.cwd()}/outputs/a_\d+_\d+: cannot be made: Not a dir"):
        RunFolder.create("a")


def test_link_to_nowhere_in_place_of_outputs_is_an_error_too() -> None:
    Path("outputs").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="cannot be made: File exists"):
        RunFolder.create("a")


@pytest.mark.parametrize("is_long", [True, False])
def test_end_of_a_training_that_takes_long_says_what_is_written(is_long: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(run_folder, "_SILENT", 0.0 if is_long else 60.0)
    monkeypatch.setattr(logger, "log_info", lines.put)
    monkeypatch.setattr(run_folder, "_last_files", lambda *args: [("curve", lambda: None)])
    monkeypatch.setattr(run_folder, "_summarise", lambda *args: {"said": lines.get(timeout=60) if is_long else ""})
    summary = run_folder.conclude(cast("Any", None), RunFolder.create("a"), "a", 1.0)
    assert summary == {"said": "writing the learning curve and the report" if is_long else ""}
    assert lines.empty()
