from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from embodichain.agents.rl.metrics.sinks import RunLog, TensorBoardSink
from embodichain.utils.video import VideoWriter
from tests.agents.rl.fakes import ListSink, read_tensorboard


def test_every_sink_gets_the_scalars_and_the_last_are_kept() -> None:
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


def test_sink_that_cannot_be_finished_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    broken, whole = BrokenSink(), ListSink()
    RunLog([broken, whole]).close()
    assert whole.is_closed
    assert capsys.readouterr().err == (
        "[WARNING] Broken gets no more metrics: closed already. The training and its other logs continue\n"
    )


# --- files ---


def test_videos_go_to_the_sinks_that_take_them(tmp_path: Path) -> None:
    class VideoSink(ListSink):
        def write_video(self, name: str, path: Path, step: int) -> None:
            self.rows.append((step, {name: len(path.name)}))

    plain, taking = ListSink(), VideoSink()
    RunLog([plain, taking]).write_videos([tmp_path / "main_cam_step_8.mp4", tmp_path / "side_step_8.mp4"], 8)
    assert plain.rows == []
    assert taking.rows == [(8, {"videos/main_cam": 19}), (8, {"videos/side": 15})]


def test_video_that_cannot_be_read_is_a_warning(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
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


def test_tensorboard_has_every_step_without_being_closed(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path, None, {})
    sink.write({"train/loss": 0.5, "train/entropy": 1.0}, 8)
    assert read_tensorboard(tmp_path) == {"train/loss": [(8, 0.5)], "train/entropy": [(8, 1.0)]}
    sink.close()


def test_resumed_tensorboard_forgets_later_steps(tmp_path: Path) -> None:
    first = TensorBoardSink(tmp_path, None, {})
    for step in (8, 16, 24):
        first.write({"train/loss": 1.0}, step)
    first.close()
    (file,) = tmp_path.iterdir()
    file.rename(file.with_name(file.name.replace("tfevents.", "tfevents.0", 1)))  # of an earlier second
    second = TensorBoardSink(tmp_path, 8, {})
    second.write({"train/loss": 2.0}, 16)
    second.close()
    assert read_tensorboard(tmp_path) == {"train/loss": [(8, 1.0), (16, 2.0)]}
