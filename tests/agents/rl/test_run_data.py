import json
from pathlib import Path

import pytest
from matplotlib.image import imread

from embodichain.agents.rl.metrics.sinks import JsonLinesSink, read_rows, rewind_metrics
from embodichain.agents.rl.run_data import draw_learning_curve

ROWS = [f'{{"step": {step}, "wall_time": {step - 0.5}}}'.encode() for step in (8, 16, 24)]


def test_rewinding_deletes_later_lines_and_a_truncated_one(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\n".join([*ROWS, b'{"st']))
    assert rewind_metrics(path, 16) == (15.5, 24)
    assert path.read_bytes().splitlines() == ROWS[:2]
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_metrics_that_are_not_there_begin_anew(tmp_path: Path) -> None:
    assert rewind_metrics(tmp_path / "metrics.jsonl", 16) == (0.0, 16)


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"[1]",
        b'{"a": 1}',
        b'{"step": "x", "wall_time": 1}',
        b'{"step": 8, "wall_time": null}',
        b'{"step": 8, "wall_time": 1, "charts/x": "many"}',
        b'{"step": 8, "wall_time": 1, "charts/x": 1e999}',
        b'{"step": 8, "wall_time": 1, "charts/x": 1' + 400 * b"0" + b"}",
        100_000 * b"[",
    ],
)
def test_line_that_is_no_row_is_skipped(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\n".join([ROWS[0], line, ROWS[1], b""]))
    assert [row["step"] for row in read_rows(path)] == [8, 16]
    assert rewind_metrics(path, 16) == (15.5, 16)
    assert path.read_bytes().splitlines() == ROWS[:2]


def test_deleted_file_of_json_lines_is_made_again(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "metrics.jsonl")
    (tmp_path / "metrics.jsonl").unlink()
    sink.write({"a": 1.0}, 2)
    assert json.loads((tmp_path / "metrics.jsonl").read_text(encoding="utf-8"))["step"] == 2


def test_resumed_json_lines_go_on_with_file_and_clock(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 8, "wall_time": 100.0}\n', encoding="utf-8")
    sink = JsonLinesSink(path, wall_time=100.0)
    sink.write({"train/loss": 2.0}, 16)
    sink.close()
    first, second = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert (first["step"], second["step"]) == (8, 16)
    assert 100 <= second["wall_time"] < 105


def test_a_metric_that_is_no_number_is_null_in_the_json_lines(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "metrics.jsonl")
    sink.write({"train/policy_loss": float("nan"), "train/entropy": 1.5}, step=4)
    sink.close()
    # Python's reader would take NaN; strict readers do not, so the text itself counts.
    line = (tmp_path / "metrics.jsonl").read_text()
    assert "NaN" not in line
    assert json.loads(line)["train/policy_loss"] is None
    assert json.loads(line)["train/entropy"] == 1.5


# --- the learning curve ---

ROW = {"step": 8, "wall_time": 0.5, "charts/episode_reward_avg_100": 1.0, "charts/success_rate_avg_100": 0.5}


@pytest.mark.e2e
@pytest.mark.parametrize(
    "rows",
    [
        [],  # stopped in the first iteration
        [{"step": 8, "wall_time": 0.5}],  # no episode has ended yet
        [ROW],
        [ROW, ROW | {"step": 16, "eval/success_rate": 1.0}],
        [ROW | {"step": 8 * i, "wall_time": float(i)} for i in range(1, 12)],
        [ROW | {"charts/episode_reward_avg_100": float("nan")}, ROW | {"step": 16}],
    ],
)
def test_picture_is_drawn_of_any_number_of_iterations(tmp_path: Path, rows: list[dict[str, float]]) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    draw_learning_curve(metrics, tmp_path / "curve.png", "push_cube_2")
    picture = imread(tmp_path / "curve.png")
    assert picture.shape[:2] == (480, 1200)  # 10 x 4 inches at 120 dpi


@pytest.mark.e2e
def test_curves_are_in_the_picture(tmp_path: Path) -> None:
    pictures = []
    for name, value in (("a", 0.0), ("b", 1.0)):
        rows = [ROW | {"step": 8 * i, "charts/success_rate_avg_100": value} for i in range(1, 3)]
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        draw_learning_curve(tmp_path / name, tmp_path / f"{name}.png", "title")
        pictures.append(imread(tmp_path / f"{name}.png"))
    left, right = ((pictures[0][:, half] != pictures[1][:, half]).any() for half in (slice(0, 600), slice(600, 1200)))
    assert (left, right) == (False, True)  # the returns are the same, the success is not
