"""Loggers that a config names. The fakes have what MLflow 3.17 and trackio 0.43 have of what is called."""

from __future__ import annotations

import re
import sqlite3
import sys
import types
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from embodichain.agents.rl.config.trainer_cfg import LoggerCfg, TrainerCfg
from embodichain.agents.rl.metrics.loggers import (
    LoggedRun,
    MLflowLogger,
    TrackioLogger,
    WandbLogger,
    begin_loggers,
    find_loggers,
)
from embodichain.agents.rl.metrics.sinks import CLOSING_SECONDS, RunLog

RUN = LoggedRun("cart_1", Path("outputs/cart_1"), {"trainer": {"seed": 3}, "gym_config": {"id": "CartPoleRL"}})
TRAINER = TrainerCfg(gym_config="env.json")
RESUMED = LoggedRun(RUN.name, RUN.folder, RUN.config, last_step=16)
CONFIG = {"env_id": "CartPoleRL", "trainer.seed": 3}


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
    log = RunLog(begin_loggers(TRAINER, found, RUN))
    log.write({"a": 1.0}, 8)
    log.write_videos([tmp_path / "main_cam_step_8.mp4"], 8)  # which it does not take
    log.close()
    assert PlainLogger.rows == ["cart_1", "a.csv", "w", (8, {"a": 1.0}), "closed"]


@pytest.mark.parametrize(
    ("func", "params", "problem"),
    [
        (
            "MLflow",
            {},
            "func: unknown logger 'MLflow'. Did you mean 'MLflowLogger'? Known: MLflowLogger, TrackioLogger",
        ),
        (
            "elsewhere.Writer",
            {},
            "func: module 'elsewhere' of 'elsewhere.Writer' must be imported first: list it in ",
        ),
        (f"{HERE}.Nothing", {}, f"func: unknown function '{HERE}.Nothing'. The module has: "),
        (f"{HERE}.PlainLogger", {}, "params: missing a required argument: 'file'"),
        (f"{HERE}.PlainLogger", {"file": "a", "mod": "b"}, "params: got an unexpected keyword argument 'mod'"),
        (f"{HERE}.PlainLogger", {"file": "a", "run": "b"}, "params: multiple values for argument 'run'"),
        # A config alone does not say where metrics are sent to.
        ("MLflowLogger", {"tracking_uri": "http://evil"}, "params: got an unexpected keyword argument 'tracking_uri'"),
        ("TrackioLogger", {"space_id": "evil/space"}, "params: got an unexpected keyword argument 'space_id'"),
    ],
)
def test_wrong_entry_is_one_line_with_its_place(func: str, params: dict[str, Any], problem: str) -> None:
    (line,) = problems_of(func, **params)
    assert line.startswith(f"trainer.loggers[0].{problem}")


def test_function_that_takes_any_parameter_is_given_all() -> None:
    assert problems_of(f"{HERE}.make_anything", colour="red", size=3) == []


def test_logger_that_cannot_begin_is_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    found = find_loggers([LoggerCfg(func=f"{HERE}.make_anything", params={"port": 80})], [HERE], [])
    RunLog(begin_loggers(TRAINER, found, RUN)).close()
    assert capsys.readouterr().err == (
        f"[WARNING] {HERE}.make_anything gets no more metrics: no server at port 80. The training and its other logs "
        "continue\n"
    )


@pytest.mark.parametrize(
    ("package", "name", "install"),
    [
        ("mlflow", "MLflowLogger", r".* -m pip install .*mlflow"),
        ("trackio", "TrackioLogger", r".* -m pip install trackio"),
    ],
)
def test_missing_package_is_a_warning_that_says_what_to_install(
    package: str, name: str, install: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    found = find_loggers([LoggerCfg(func=name)], [], [])
    RunLog(begin_loggers(TRAINER, found, RUN)).close()
    assert re.search(rf"^\[WARNING\] {name} gets no more metrics: .*: {install}", capsys.readouterr().err)


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

    def Settings(self, init_timeout: float) -> None:  # noqa: N802 (W&B's class)
        assert init_timeout < CLOSING_SECONDS

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


def test_wandb_that_is_ahead_of_our_files_is_not_sent_again_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeWandb("k")
    fake.summary = {"global_step": 24}  # the process was killed before it could write that step into our files
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sink = WandbLogger(LoggedRun("run", tmp_path, {}, last_step=16), "project")
    for step in (16, 24, 32):
        sink.write({"train/loss": 0.5}, step)
    assert [call[1]["global_step"] for call in fake.calls if call[0] == "log"] == [32]


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


def test_resumed_wandb_is_not_sent_again_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandb("k")
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sink = WandbLogger(LoggedRun("run", tmp_path, {}, last_step=16), "project")
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
    log = RunLog(begin_loggers(TrainerCfg(gym_config="env.json", use_wandb=True), [], RUN))
    for step in (8, 16):
        log.write({"a": 1.0}, step)
        log.write_videos([tmp_path / "main_cam_step_8.mp4"], 8)
    log.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("[WARNING] Weights & Biases gets no more metrics: wandb cannot be imported (")
    assert "pip install" in line


# --- MLflow ---


class Metric(NamedTuple):
    key: str
    value: float
    timestamp: int
    step: int


class Param(NamedTuple):
    key: str
    value: str


class FakeMlflow(types.ModuleType):
    """A tracking store with its client."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.entities = types.SimpleNamespace(Metric=Metric, Param=Param)
        self.experiments: dict[str, str] = {}
        self.runs: dict[str, dict[str, Any]] = {}

    def MlflowClient(self) -> FakeMlflow:  # noqa: N802 (MLflow's class)
        return self

    def get_experiment_by_name(self, name: str) -> types.SimpleNamespace | None:
        known = self.experiments.get(name)
        return None if known is None else types.SimpleNamespace(experiment_id=known)

    def create_experiment(self, name: str) -> str:
        return self.experiments.setdefault(name, f"e{len(self.experiments)}")

    def create_run(self, experiment_id: str, run_name: str) -> types.SimpleNamespace:
        name = f"r{len(self.runs)}"
        self.runs[name] = {"name": run_name, "status": "RUNNING", "metrics": [], "params": {}, "artifacts": []}
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=name))

    def search_runs(self, experiment_ids: list[str], filter_string: str) -> list[types.SimpleNamespace]:
        found = [key for key, run in self.runs.items() if filter_string == f"attributes.run_name = '{run['name']}'"]
        return [types.SimpleNamespace(info=types.SimpleNamespace(run_id=key)) for key in reversed(found)]

    def update_run(self, run_id: str, status: str) -> None:
        self.runs[run_id]["status"] = status

    def log_batch(self, run_id: str, metrics: list[Metric] = [], params: list[Param] = []) -> None:  # noqa: B006
        assert len(params) <= 100
        self.runs[run_id]["metrics"] += [(metric.key, metric.value, metric.step) for metric in metrics]
        self.runs[run_id]["params"] |= {param.key: param.value for param in params}

    def log_artifact(self, run_id: str, local_path: str, artifact_path: str) -> None:
        self.runs[run_id]["artifacts"].append((local_path, artifact_path))

    def set_terminated(self, run_id: str) -> None:
        self.runs[run_id]["status"] = "FINISHED"


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> FakeMlflow:
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    return fake


def test_mlflow_gets_metrics_videos_and_hyperparameters(mlflow: FakeMlflow, tmp_path: Path) -> None:
    logger = MLflowLogger(RUN, "arms")
    logger.write({"train/loss": 0.5, "eval/success_rate": 1.0}, 8)
    logger.write_video("videos/main_cam", tmp_path / "a.mp4", 8)
    assert mlflow.runs["r0"]["status"] == "RUNNING"
    logger.close()
    assert list(mlflow.experiments) == ["arms"]
    assert mlflow.runs == {
        "r0": {
            "name": "cart_1",
            "status": "FINISHED",
            "metrics": [("train/loss", 0.5, 8), ("eval/success_rate", 1.0, 8)],
            "params": {name: str(value) for name, value in CONFIG.items()},
            "artifacts": [(f"{tmp_path}/a.mp4", "videos/main_cam")],
        }
    }


def test_mlflow_takes_more_than_a_hundred_hyperparameters(mlflow: FakeMlflow) -> None:
    MLflowLogger(LoggedRun("many", Path(), {"policy": {f"p{i}": i for i in range(250)}}))
    assert len(mlflow.runs["r0"]["params"]) == 250


def test_resumed_run_continues_its_mlflow_run_without_what_that_has(mlflow: FakeMlflow) -> None:
    first = MLflowLogger(RUN)
    first.write({"a": 1.0}, 16)
    first.close()
    second = MLflowLogger(RESUMED)
    assert mlflow.runs["r0"]["status"] == "RUNNING"
    second.write({"a": 1.0}, 16)
    second.write({"a": 2.0}, 24)
    assert mlflow.runs["r0"]["metrics"] == [("a", 1.0, 16), ("a", 2.0, 24)]
    assert len(mlflow.runs) == 1


def test_resumed_run_that_mlflow_does_not_have_begins_there(mlflow: FakeMlflow) -> None:
    MLflowLogger(RESUMED)
    assert [run["name"] for run in mlflow.runs.values()] == ["cart_1"]


def test_real_mlflow_has_what_was_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # it has a newer store, of files it warns
    uri = (tmp_path / "store").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    (tmp_path / "a.mp4").write_bytes(b"a video")
    for run, step in ((RUN, 16), (RESUMED, 24)):
        logger = MLflowLogger(run)
        logger.write({"train/loss": 0.5}, step)
        logger.write_video("videos/main_cam", tmp_path / "a.mp4", step)
        logger.close()
    client = real.MlflowClient(uri)
    (found,) = client.search_runs([client.get_experiment_by_name("embodichain").experiment_id])
    history = client.get_metric_history(found.info.run_id, "train/loss")
    assert [(metric.value, metric.step) for metric in history] == [(0.5, 16), (0.5, 24)]
    assert found.data.params == {name: str(value) for name, value in CONFIG.items()}
    assert found.info.status == "FINISHED"
    assert [path.name for path in tmp_path.rglob("videos/main_cam/*")] == ["a.mp4"]


# --- trackio ---


class FakeTrackio(types.ModuleType):
    """The part of the package that is used."""

    def __init__(self) -> None:
        super().__init__("trackio")
        self.calls: list[Any] = []

    def init(self, project: str, name: str, **options: Any) -> FakeTrackio:
        self.calls.append((project, name, options))
        return self

    def Video(self, path: str) -> str:  # noqa: N802 (trackio's class)
        return f"video {path}"

    def log(self, metrics: dict[str, Any], step: int) -> None:
        self.calls.append((step, metrics))

    def finish(self) -> None:
        self.calls.append("finish")


def test_trackio_gets_metrics_videos_and_hyperparameters(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTrackio()
    monkeypatch.setitem(sys.modules, "trackio", fake)
    logger = TrackioLogger(RESUMED, "arms")
    for step in (16, 24):
        logger.write({"a": 1.0}, step)
        logger.write_video("videos/main_cam", Path("a.mp4"), step)
    logger.close()
    assert fake.calls == [
        ("arms", "cart_1", {"space_id": None, "config": CONFIG, "resume": "allow"}),
        (24, {"a": 1.0}),
        (24, {"videos/main_cam": "video a.mp4"}),
        "finish",
    ]


def test_real_trackio_has_what_was_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))  # read when it is imported
    pytest.importorskip("trackio")
    for run, step in ((RUN, 16), (RESUMED, 24)):
        logger = TrackioLogger(run)
        logger.write({"train/loss": 0.5}, step)
        logger.close()
    with closing(sqlite3.connect(tmp_path / "embodichain.db")) as store:
        rows = store.execute("select run_name, step, metrics from metrics order by step").fetchall()
    assert rows == [("cart_1", step, b'{"train/loss":0.5}') for step in (16, 24)]
