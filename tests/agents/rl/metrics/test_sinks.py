from __future__ import annotations

import io
import json
import sys
import types
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from embodichain.agents.rl.metrics.sinks import (
    JsonLinesSink,
    RunLog,
    TensorBoardSink,
    WandbSink,
    import_wandb,
)
from embodichain.utils import ConfigError
from embodichain.utils.video import VideoWriter
from tests.agents.rl.fakes import ListSink, read_tensorboard


def test_every_sink_gets_the_scalars_and_the_last_of_each_is_kept() -> None:
    sinks = [ListSink(), ListSink()]
    log = RunLog([*sinks])
    log.write({"a": 1.0, "b": 2.0}, 10)
    log.write({"a": 3.0}, 20)
    log.close()
    assert all(sink.rows == [(10, {"a": 1.0, "b": 2.0}), (20, {"a": 3.0})] for sink in sinks)
    assert all(sink.is_closed for sink in sinks)
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
        "[WARNING] Broken has failed at step 2: no such server. It gets no more metrics; the training continues\n"
    )


def test_sink_that_cannot_be_finished_is_a_warning_and_the_others_are_finished(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken, whole = BrokenSink(), ListSink()
    RunLog([broken, whole]).close()
    assert whole.is_closed
    assert capsys.readouterr().err == "[WARNING] Broken could not be finished: closed already\n"


@pytest.mark.parametrize(
    "make", [lambda folder: TensorBoardSink(folder, None, {}), lambda folder: JsonLinesSink(folder / "metrics.jsonl")]
)
def test_log_whose_file_was_deleted_fails_instead_of_writing_into_nothing(tmp_path: Path, make: Any) -> None:
    sink = make(tmp_path)
    sink.write({"a": 1.0}, 1)
    for file in tmp_path.iterdir():
        file.unlink()
    with pytest.raises(OSError, match="the file was deleted"):
        sink.write({"a": 1.0}, 2)
    sink.close()


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


def test_tensorboard_of_a_run_resumed_within_a_second_is_read_last(tmp_path: Path) -> None:
    for i in range(12):
        sink = TensorBoardSink(tmp_path, i or None, {})
        for step in (i + 1, i + 2, i + 3):
            sink.write({"a": float(i)}, step)
        sink.close()
    # each one takes back all but the first step of that before it
    assert read_tensorboard(tmp_path) == {"a": [*((i + 1, float(i)) for i in range(12)), (13, 11.0), (14, 11.0)]}


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


# --- Weights & Biases ---


class FakeWandb(types.ModuleType):
    """The part of the package that is used."""

    def __init__(self, api_key: str | None) -> None:
        super().__init__("wandb")
        self.api = types.SimpleNamespace(api_key=api_key)
        self.calls: list[Any] = []
        self.errors = types.SimpleNamespace(Error=ConnectionError)
        self.summary: dict[str, float] = {}
        self.is_reachable = True
        self.run: FakeWandb | None = None

    def init(self, **kwargs: Any) -> FakeWandb:
        if kwargs["mode"] == "online" and not self.is_reachable:
            raise ConnectionError("no route to host\nsecond line")
        self.calls.append(("init", kwargs["mode"], kwargs["project"], kwargs["name"], kwargs["config"]))
        return self

    def Video(self, path: str, format: str) -> tuple[str, str]:  # noqa: N802 (W&B's class)
        return (path, format)

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.calls.append(("define_metric", name, step_metric))

    def log(self, values: dict[str, float]) -> None:
        self.calls.append(("log", values))

    def teardown(self) -> None:
        self.calls.append(("teardown",))

    def finish(self) -> None:
        self.calls.append(("finish",))


@pytest.mark.parametrize(
    ("api_key", "variable", "mode"), [(None, None, "offline"), ("k", None, "online"), (None, "k", "online")]
)
def test_wandb_gets_the_same_on_a_step_axis_of_its_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    api_key: str | None,
    variable: str | None,
    mode: str,
) -> None:
    fake = FakeWandb(api_key)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    if variable is not None:
        monkeypatch.setenv("WANDB_API_KEY", variable)
    sink = WandbSink("project", "run", tmp_path, {"seed": 1})
    sink.write({"train/loss": 0.5}, 8)
    sink.write_video("videos/main_cam", tmp_path / "a.mp4", 8)
    sink.close()
    assert fake.calls == [
        ("init", mode, "project", "run", {"seed": 1}),
        ("define_metric", "global_step", None),
        ("define_metric", "*", "global_step"),
        ("log", {"train/loss": 0.5, "global_step": 8}),
        ("log", {"videos/main_cam": (f"{tmp_path}/a.mp4", "mp4"), "global_step": 8}),
        ("finish",),
    ]
    assert ("logging offline" in capsys.readouterr().err) is (mode == "offline")


def test_wandb_that_is_ahead_of_our_files_is_not_sent_again_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb("k")
    fake.summary = {"global_step": 24}  # the process was killed before it could write that step into our files
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sink = WandbSink("project", "run", tmp_path, {}, last_step=16)
    for step in (16, 24, 32):
        sink.write({"train/loss": 0.5}, step)
    assert [call[1]["global_step"] for call in fake.calls if call[0] == "log"] == [32]


def test_wandb_that_cannot_be_reached_logs_offline_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakeWandb("k")
    fake.is_reachable = False
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sink = WandbSink("project", "run", tmp_path, {})
    sink.write({"train/loss": 0.5}, 8)
    assert [call[0] for call in fake.calls] == ["teardown", "init", "define_metric", "define_metric", "log"]
    assert fake.calls[1][1] == "offline"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("[WARNING] Weights & Biases cannot be reached: no route to host: logging offline into ")


def test_resumed_wandb_is_not_sent_again_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb("k")
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sink = WandbSink("project", "run", tmp_path, {}, last_step=16)
    sink.write({"train/loss": 0.5}, 16)
    sink.write({"train/loss": 0.25}, 24)
    assert fake.calls[-1] == ("log", {"train/loss": 0.25, "global_step": 24})
    assert sum(call[0] == "log" for call in fake.calls) == 1


def test_wandb_run_that_the_program_has_begun_is_used_and_left_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb("k")
    fake.run = fake
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sink = WandbSink("project", "run", tmp_path, {})
    sink.write({"train/loss": 0.5}, 8)
    sink.close()
    assert [call[0] for call in fake.calls] == ["define_metric", "define_metric", "log"]


def test_missing_wandb_is_an_error_that_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    with pytest.raises(ConfigError, match=r"trainer\.use_wandb: .* pip install .*'wandb"):
        WandbSink("project", "run", tmp_path, {})


def test_folder_of_offline_logs_is_not_taken_for_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wandb").mkdir()
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(ConfigError, match=r"trainer\.use_wandb: the package wandb is not installed"):
        import_wandb()


def test_a_metric_that_is_no_number_is_null_in_the_json_lines(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "metrics.jsonl")
    sink.write({"train/policy_loss": float("nan"), "train/entropy": 1.5}, step=4)
    sink.close()
    # Python's reader would take NaN; strict readers do not, so the text itself counts.
    line = (tmp_path / "metrics.jsonl").read_text()
    assert "NaN" not in line
    assert json.loads(line)["train/policy_loss"] is None
    assert json.loads(line)["train/entropy"] == 1.5
