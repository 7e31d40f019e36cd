import io
import sys
import types
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from embodichain.agents.rl.config.trainer_cfg import LoggerCfg, TrainerCfg
from embodichain.agents.rl.metrics.sinks import (
    LoggedRun,
    RunLog,
    TensorBoardSink,
    WandbLogger,
    begin_loggers,
    find_loggers,
)
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


RUN = LoggedRun("cart_1", Path("outputs/cart_1"), {"trainer": {"seed": 3}, "gym_config": {"id": "CartPoleRL"}})
TRAINER = TrainerCfg(gym_config="env.json")


class PlainLogger:
    """A user's, without videos."""

    rows: ClassVar[list[Any]] = []

    def __init__(self, run: LoggedRun, file: str, mode: str = "w") -> None:
        self.rows[:] = [run.name, file, mode]

    def write(self, scalars: dict[str, float], step: int) -> None:
        self.rows.append((step, scalars))

    def close(self) -> None:
        self.rows.append("closed")


def make_anything(run: LoggedRun, **options: Any) -> PlainLogger:
    if "port" in options:
        raise ConnectionError(f"no server at port {options['port']}\nsecond line")
    return PlainLogger(run, str(options))


HERE = __name__


@pytest.fixture(autouse=True)
def this_module_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, HERE, sys.modules[HERE])


def problems_of(func: str, **params: Any) -> list[str]:
    problems: list[str] = []
    find_loggers([LoggerCfg(func=func, params=params)], [HERE], problems)
    return problems


def test_users_logger_gets_run_parameters_and_metrics(tmp_path: Path) -> None:
    problems: list[str] = []
    found = find_loggers([LoggerCfg(func=f"{HERE}.PlainLogger", params={"file": "a.csv"})], [HERE], problems)
    assert problems == []
    log = RunLog()
    begin_loggers(log, TRAINER, found, RUN)
    log.write({"a": 1.0}, 8)
    log.write_videos([tmp_path / "main_cam_step_8.mp4"], 8)  # which it does not take
    log.close()
    assert PlainLogger.rows == ["cart_1", "a.csv", "w", (8, {"a": 1.0}), "closed"]


@pytest.mark.parametrize(
    ("func", "params", "problem"),
    [
        ("MLflow", {}, "func: must be the dotted path of a function or class, got 'MLflow'"),
        ("elsewhere.Writer", {}, "func: module 'elsewhere' of 'elsewhere.Writer' must be imported first"),
        (f"{HERE}.Nothing", {}, f"func: unknown function '{HERE}.Nothing'"),
        (f"{HERE}.PlainLogger", {}, "params: missing a required argument: 'file'"),
        (f"{HERE}.PlainLogger", {"file": "a", "run": "b"}, "params: multiple values for argument 'run'"),
        (f"{HERE}.PlainLogger", {"file": 3}, "params: file must be of type str, not 3"),
    ],
)
def test_wrong_entry_is_one_line_with_its_place(func: str, params: dict[str, Any], problem: str) -> None:
    (line,) = problems_of(func, **params)
    assert line.startswith(f"trainer.loggers[0].{problem}")


def test_logger_that_cannot_begin_is_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    found = find_loggers([LoggerCfg(func=f"{HERE}.make_anything", params={"port": 80})], [HERE], [])
    begin_loggers(RunLog(), TRAINER, found, RUN)
    assert capsys.readouterr().err == (
        f"[WARNING] {HERE}.make_anything gets no more metrics: no server at port 80. The training and its other logs "
        "continue\n"
    )


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

    def init(self, **kwargs: Any) -> Self:
        if kwargs["mode"] == "online" and not self.is_reachable:
            raise ConnectionError("no route to host\nsecond line")
        self.calls.append(("init", kwargs["mode"], kwargs["project"], kwargs["name"], kwargs["config"]))
        return self

    def Settings(self, init_timeout: float) -> None:  # noqa: N802 (W&B's class)
        assert init_timeout < 30

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
    sink = WandbLogger(LoggedRun("run", tmp_path, {"seed": 1}), "project")
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


@pytest.mark.parametrize(("online", "logged"), [({}, [24, 32]), ({"global_step": 24}, [32])])
def test_resumed_wandb_is_not_sent_again_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, online: dict[str, float], logged: list[int]
) -> None:
    fake = FakeWandb("k")
    fake.summary = online  # ahead if the process was killed before it could write that step into our files
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sink = WandbLogger(LoggedRun("run", tmp_path, {}, last_step=16), "project")
    for step in (16, 24, 32):
        sink.write({"train/loss": 0.5}, step)
    assert [call[1]["global_step"] for call in fake.calls if call[0] == "log"] == logged


def test_wandb_that_cannot_be_reached_logs_offline_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakeWandb("k")
    fake.is_reachable = False
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sink = WandbLogger(LoggedRun("run", tmp_path, {}), "project")
    sink.write({"train/loss": 0.5}, 8)
    assert [call[0] for call in fake.calls] == ["teardown", "init", "define_metric", "define_metric", "log"]
    assert fake.calls[1][1] == "offline"
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("[WARNING] Weights & Biases: no route to host: logging offline; send it with 'wandb sync ")


def test_wandb_run_of_the_program_is_used_and_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb("k")
    fake.run = fake
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sink = WandbLogger(LoggedRun("run", tmp_path, {}), "project")
    sink.write({"train/loss": 0.5}, 8)
    sink.close()
    assert [call[0] for call in fake.calls] == ["define_metric", "define_metric", "log"]


@pytest.mark.parametrize("is_folder", [False, True], ids=["missing", "a folder of offline logs"])
def test_missing_wandb_is_one_warning_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_folder: bool
) -> None:
    if is_folder:
        (tmp_path / "wandb").mkdir()
        monkeypatch.delitem(sys.modules, "wandb", raising=False)
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
    else:
        monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    log = RunLog()
    begin_loggers(log, TrainerCfg(gym_config="env.json", use_wandb=True), [], RUN)
    for step in (8, 16):
        log.write({"a": 1.0}, step)
        log.write_videos([tmp_path / "main_cam_step_8.mp4"], 8)
    log.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("[WARNING] Weights & Biases gets no more metrics: wandb cannot be imported (")
    assert "pip install" in line
