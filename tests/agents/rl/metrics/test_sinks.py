from __future__ import annotations

import io
import json
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from embodichain.agents.rl.metrics import sinks
from embodichain.agents.rl.metrics.sinks import JsonLinesSink, RunLog, TensorBoardSink, ThreadedSink
from embodichain.utils.errors import UnavailableError
from embodichain.utils.video import VideoWriter
from tests.agents.rl.fakes import ListSink, read_tensorboard


def test_every_sink_gets_the_scalars_and_the_last_of_each_is_kept() -> None:
    both = [ListSink(), ListSink()]
    log = RunLog([*both])
    log.write({"a": 1.0, "b": 2.0}, 10)
    log.write({"a": 3.0}, 20)
    log.close()
    assert all(sink.rows == [(10, {"a": 1.0, "b": 2.0}), (20, {"a": 3.0})] for sink in both)
    assert all(sink.is_closed for sink in both)
    assert log.last == {"a": 3.0, "b": 2.0}


class BrokenSink(ListSink):
    """Fails from the second step on, and when it is closed."""

    name = "Broken"

    def write(self, scalars: dict[str, float], step: int) -> None:
        super().write(scalars, step)
        if len(self.rows) > 1:
            raise RuntimeError("no such server\nTraceback...")

    def close(self) -> None:
        raise OSError("closed already")


def test_sink_that_fails_is_left_out_with_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    broken, whole = BrokenSink(), ListSink()
    log = RunLog([broken, whole])
    for step in (1, 2, 3, 4):
        log.write({"a": 1.0}, step)
    log.close()
    assert [step for step, _ in broken.rows] == [1, 2]
    assert [step for step, _ in whole.rows] == [1, 2, 3, 4]
    assert whole.is_closed
    assert capsys.readouterr().err == (
        "[WARNING] Broken gets no more metrics: no such server. The training and its other logs continue\n"
    )


def test_sink_that_cannot_be_finished_is_a_warning_and_the_others_are_finished(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken, whole = BrokenSink(), ListSink()
    RunLog([broken, whole]).close()
    assert whole.is_closed
    assert capsys.readouterr().err == (
        "[WARNING] Broken gets no more metrics: closed already. The training and its other logs continue\n"
    )


def test_deleted_file_of_json_lines_is_made_again(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "metrics.jsonl")
    (tmp_path / "metrics.jsonl").unlink()
    sink.write({"a": 1.0}, 2)
    assert json.loads((tmp_path / "metrics.jsonl").read_text(encoding="utf-8"))["step"] == 2


# --- sinks in threads ---


def test_threaded_sink_gets_everything_before_it_is_closed(tmp_path: Path) -> None:
    plain = ListSink()
    log = RunLog([ThreadedSink("Remote", lambda: plain)])
    for step in range(50):
        log.write({"a": 1.0}, step)
    log.write_videos([tmp_path / "a_step_8.mp4"], 8)  # which it does not take
    log.close()
    assert [step for step, _ in plain.rows] == list(range(50))
    assert plain.is_closed


def test_server_that_hangs_costs_one_warning_and_no_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(sinks, "CLOSING_SECONDS", 0.1)
    monkeypatch.setattr(sinks, "_MOST_WAITING", 3)

    def begin() -> Any:
        answer.wait()
        return ListSink()

    whole = ListSink()
    log = RunLog([ThreadedSink("Full", begin), whole])
    start = time.monotonic()
    for step in range(8):
        log.write({"a": 1.0}, step)
    log.add(ThreadedSink("Slow", begin))
    log.write_videos([tmp_path / "a_step_8.mp4"], 8)
    log.close()
    assert time.monotonic() - start < 5
    answer.set()
    assert [step for step, _ in whole.rows] == list(range(8))
    assert capsys.readouterr().err.splitlines() == [
        "[WARNING] Full gets no more metrics: no answer while 3 entries were waiting. The training and its other logs "
        "continue",
        "[WARNING] Slow gets no more metrics: not finished within 0.1 s. The training and its other logs continue",
    ]


def test_sink_that_cannot_begin_is_one_warning(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def begin() -> Any:
        raise UnavailableError("not installed")

    log = RunLog([ThreadedSink("Remote", begin)])
    for step in range(3):
        log.write({"a": 1.0}, step)
        log.write_videos([tmp_path / "a_step_8.mp4"], 8)
    log.close()
    assert capsys.readouterr().err == (
        "[WARNING] Remote gets no more metrics: not installed. The training and its other logs continue\n"
    )


# --- files ---


def test_videos_go_to_the_sinks_that_take_them_by_the_recorders_name(tmp_path: Path) -> None:
    class VideoSink(ListSink):
        def write_video(self, name: str, path: Path, step: int) -> None:
            self.rows.append((step, {name: len(path.name)}))

    plain, taking = ListSink(), VideoSink()
    RunLog([plain, taking]).write_videos([tmp_path / "main_cam_step_8.mp4", tmp_path / "side_step_8.mp4"], 8)
    assert plain.rows == []
    assert taking.rows == [(8, {"videos/main_cam": 19}), (8, {"videos/side": 15})]


def test_video_that_cannot_be_read_is_a_warning_and_the_metrics_continue(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sink = TensorBoardSink(tmp_path, None, {})
    log = RunLog([sink])
    log.write_videos([tmp_path / "none_step_8.mp4"], 8)
    log.write({"a": 1.0}, 16)
    log.close()
    assert f"[WARNING] TensorBoard did not take the video {tmp_path}/none_step_8.mp4: " in capsys.readouterr().err
    assert read_tensorboard(tmp_path) == {"a": [(16, 1.0)]}


def test_tensorboard_shows_a_video_as_a_small_moving_image(tmp_path: Path) -> None:
    with closing(VideoWriter(tmp_path / "main_cam_step_8.mp4", 640, 480, 20.0)) as video:
        for shade in range(0, 240, 8):  # 30 images, 1.5 s
            video.write(np.full((480, 640, 3), shade, np.uint8))
    sink = TensorBoardSink(tmp_path / "logs", None, {})
    sink.write_video("videos/main_cam", tmp_path / "main_cam_step_8.mp4", 8)
    sink.close()
    (event,) = EventAccumulator(str(tmp_path / "logs")).Reload().Images("videos/main_cam")
    assert (event.step, event.width, event.height) == (8, 320, 240)
    with Image.open(io.BytesIO(event.encoded_image_string)) as gif:
        assert (gif.size, gif.format, gif.n_frames) == ((320, 240), "GIF", 15)  # type: ignore[attr-defined]


def test_tensorboard_has_the_hyperparameters(tmp_path: Path) -> None:
    config = {
        "trainer": {"seed": 3, "events": {"eval": {}}},
        "algorithm": {"cfg": {"betas": [0.9, 0.99], "clip": None}},
    }
    TensorBoardSink(tmp_path, None, config | {"gym_config": {"id": "CartPoleRL"}}).close()
    events = EventAccumulator(str(tmp_path)).Reload()
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    hparams = HParamsPluginData.FromString(content).session_start_info.hparams
    assert {name: value.WhichOneof("kind") for name, value in hparams.items()} == {
        "env_id": "string_value",
        "trainer.seed": "number_value",
        "algorithm.cfg.betas": "string_value",
        "algorithm.cfg.clip": "string_value",
    }
    assert hparams["algorithm.cfg.betas"].string_value == "[0.9, 0.99]"
    assert hparams["trainer.seed"].number_value == 3


def test_json_lines_can_be_read_while_the_run_goes_on(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "metrics.jsonl")
    sink.write({"train/loss": 0.5}, 8)
    (row,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    sink.close()
    assert (row["step"], row["train/loss"]) == (8, 0.5)
    assert 0 <= row["wall_time"] < 5


def test_tensorboard_files_hold_the_scalars_at_their_steps(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path, None, {})
    sink.write({"train/loss": 0.5}, 8)
    sink.write({"train/loss": 0.25}, 16)
    sink.close()
    assert read_tensorboard(tmp_path) == {"train/loss": [(8, 0.5), (16, 0.25)]}


def test_tensorboard_has_every_step_without_being_closed(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path, None, {})
    sink.write({"train/loss": 0.5, "train/entropy": 1.0}, 8)
    assert read_tensorboard(tmp_path) == {"train/loss": [(8, 0.5)], "train/entropy": [(8, 1.0)]}
    sink.close()


def test_resumed_tensorboard_forgets_what_lies_beyond_the_checkpoint(tmp_path: Path) -> None:
    first = TensorBoardSink(tmp_path, None, {})
    for step in (8, 16, 24):
        first.write({"train/loss": 1.0}, step)
    first.close()
    second = TensorBoardSink(tmp_path, 8, {})
    second.write({"train/loss": 2.0}, 16)
    second.close()
    assert read_tensorboard(tmp_path) == {"train/loss": [(8, 1.0), (16, 2.0)]}


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
