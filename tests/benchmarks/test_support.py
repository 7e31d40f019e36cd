"""docs/support.md is what its records say, of every config that is shipped."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import support
from benchmarks.support import BARS, PAGE, RESULTS, cell, main, newest, page_of, read_records, record_of
from benchmarks.support import shipped_configs as configs

PUSH = "push_cube/train_config_quickstart.json"


def record(**changes: Any) -> dict[str, Any]:
    summary = {"success_rate": 0.95, "avg_reward": 3.0, "env_steps": 1000, "train_seconds": 12.3}
    config = {"algorithm": {"name": "ppo"}}
    return record_of(PUSH, config, True, "cpu", summary) | {"system": "Linux x86_64"} | changes


def test_page_is_written_from_the_committed_records() -> None:
    assert PAGE.read_text(encoding="utf-8") == page_of(read_records(RESULTS))


def test_every_shipped_config_has_run_on_the_processor() -> None:
    run = {name for name, physics, _ in newest(read_records(RESULTS)) if physics == "cpu"}
    assert set(configs()) <= run


def test_bars_are_of_shipped_configs() -> None:
    assert set(BARS) <= set(configs())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "**trained**"),
        ({"value": 0.89}, "below its bar"),
        ({"value": None}, "below its bar"),
        ({"whole": False}, "runs"),
    ],
)
def test_cell_says_how_far_a_config_came(changes: dict[str, Any], expected: str) -> None:
    assert cell(record(**changes), "cpu") == expected


def test_configs_that_nobody_tried_are_called_so() -> None:
    assert (cell(None, "cuda"), cell(None, "cpu")) == ("never run", "untested")


def test_newest_training_to_the_end_counts_and_a_short_one_does_not_replace_it() -> None:
    old, new, short = record(value=0.1), record(value=0.97), record(value=0.0, whole=False)
    assert list(newest([old, new, short]).values()) == [new]
    assert list(newest([short]).values()) == [short]


def test_gpu_of_any_number_is_the_same_column() -> None:
    summary = {"success_rate": 1.0, "env_steps": 1, "train_seconds": 1.0}
    assert record_of(PUSH, {"algorithm": {"name": "ppo"}}, True, "cuda:1", summary)["physics"] == "cuda"


def test_unknown_config_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["push_cub"])
    assert end.value.code == 2
    assert "push_cub: no shipped config; there are basic/cart_pole/" in capsys.readouterr().err


def test_commit_has_a_mark_where_files_have_changed_but_for_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("code.py", "docs/support.md", "benchmarks/results/support.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("1", encoding="utf-8")
    monkeypatch.setattr(support, "ROOT", tmp_path)
    monkeypatch.setattr(support, "RESULTS", tmp_path / "benchmarks/results/support.jsonl")
    monkeypatch.setattr(support, "PAGE", tmp_path / "docs/support.md")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for call in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "All"]):
        subprocess.run(["git", "-C", str(tmp_path), *call], check=True)
    (tmp_path / "docs/support.md").write_text("2", encoding="utf-8")
    assert re.fullmatch("[0-9a-f]{7}", support.commit())
    (tmp_path / "code.py").write_text("2", encoding="utf-8")
    assert re.fullmatch(r"[0-9a-f]{7}\+", support.commit())
