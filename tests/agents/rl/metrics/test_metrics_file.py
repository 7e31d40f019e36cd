from __future__ import annotations

import os
from pathlib import Path

import pytest

from embodichain.agents.rl.metrics.metrics_file import read_rows, rewind_metrics

ROWS = [f'{{"step": {step}, "wall_time": {step - 0.5}}}'.encode() for step in (8, 16, 24)]


def test_metrics_beyond_the_step_are_taken_away_and_so_is_a_line_that_was_cut_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\n".join([*ROWS, b'{"st']))
    assert rewind_metrics(path, 16) == (15.5, 24)
    assert path.read_bytes().splitlines() == ROWS[:2]
    assert capsys.readouterr().err == ""


def test_metrics_that_are_not_there_begin_anew(tmp_path: Path) -> None:
    assert rewind_metrics(tmp_path / "metrics.jsonl", 16) == (0.0, 16)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"[1]",
        b"7",
        b'{"a": 1}',
        b'{"step": "x", "wall_time": 1}',
        b'{"step": 8.5, "wall_time": 1}',
        b'{"step": true, "wall_time": 1}',
        b'{"step": -8, "wall_time": 1}',
        b'{"step": 8, "wall_time": null}',
        b'{"step": 8, "wall_time": 1, "charts/x": "many"}',
        b'{"step": 8, "wall_time": 1, "charts/x": 1e999}',
        b'{"step": 8, "wall_time": 1, "charts/x": 1' + 400 * b"0" + b"}",
        b'{"step": 8, "wall_time": 1, "charts/x": NaN}',
        100_000 * b"[",
    ],
)
def test_line_that_is_no_row_is_passed_over_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: bytes
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\n".join([ROWS[0], line, ROWS[1], b""]))
    assert [row["step"] for row in read_rows(path)] == [8, 16]
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning == f"[WARNING] {path}: line 2 cannot be read as metrics, and is passed over"
    assert rewind_metrics(path, 16) == (15.5, 16)
    assert path.read_bytes().splitlines() == ROWS[:2]


def test_many_lines_that_are_no_rows_are_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"?\n" * 5 + ROWS[0] + b"\n")
    assert len(read_rows(path)) == 1
    assert capsys.readouterr().err.count("5 lines, the first of them 1, cannot be read as metrics") == 1


def test_rewinding_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(ROWS[0])
    rewind_metrics(tmp_path / "metrics.jsonl", 8)
    assert os.listdir(tmp_path) == ["metrics.jsonl"]
