"""``embodichain sweep``."""

import io
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from embodichain.cli import main
from embodichain.ext.report import sweep
from embodichain.ext.report.sweep import Parameter, TrialFailedError
from embodichain.utils import ConfigError
from tests.agents.rl.fakes import tiny_config, write_config

pytestmark = pytest.mark.usefixtures("own_folder")

pytest.importorskip("optuna")

GAMMA = "algorithm.cfg.gamma"


@pytest.mark.parametrize("text", ["a", "a=", "=1:2", "a=1:2:3", "a=1:2:log:x", "a=b:c", "a=2:1", "a=0:1:log"])
def test_other_forms_of_parameters_are_errors(text: str) -> None:
    with pytest.raises(ConfigError, match="--param"):
        Parameter(text)


class Trial:
    """Takes the first value."""

    def suggest_categorical(self, path: str, choices: Sequence[str]) -> str:
        return choices[0]

    def suggest_float(self, path: str, low: float, high: float, log: bool) -> float:
        return low / 4 if log else low

    def suggest_int(self, path: str, low: int, high: int, log: bool) -> int:
        return high


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=1:5", "5"),
        ("a=1.0:8.0:log", "0.25"),
        ("a=0.5:1", "0.5"),
        ("a=true,false", "true"),
        ("a=elu,3", '"elu"'),
        ("a=[64,64],[8]", "[64, 64]"),
    ],
)
def test_parameters_are_read(text: str, value: str) -> None:
    assert Parameter(text).suggest(Trial()) == value


def value_of(arguments: Sequence[str], path: str) -> Any:
    return next(json.loads(text.partition("=")[2]) for text in arguments if text.startswith(f"{path}="))


def search(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    train: Callable[[Sequence[str]], float],
    *argv: str,
    parameter: str = f"{GAMMA}=0.5:0.99",
) -> dict[str, Any]:
    """Sweep with a function of a training's arguments in place of the training."""
    monkeypatch.setattr(sweep, "score", lambda arguments, *_: train(arguments))
    code = main(["sweep", write_config(Path(), tiny_config()), "--param", parameter, "--json", *argv])
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == int(result["best"] is None)
    return result


def test_best_trial_has_the_best_mean_of_its_seeds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(arguments: Sequence[str]) -> float:
        return float(value_of(arguments, GAMMA) + 0.1 * value_of(arguments, "trainer.seed"))

    first = search(capsys, monkeypatch, train, "--trials", "3", "--seeds", "2")
    values = {trial["params"][GAMMA]: trial["value"] for trial in first["trials"]}
    assert len(values) == 3
    assert all(value == pytest.approx(gamma + 0.15) for gamma, value in values.items())
    assert first["best"]["params"][GAMMA] == max(values)


def test_study_is_continued_without_repetition(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for trials in (2, 4):
        result = search(capsys, monkeypatch, lambda given: value_of(given, GAMMA), "--trials", "2")
        assert len({trial["params"][GAMMA] for trial in result["trials"]}) == trials


def test_lists_alone_are_a_grid(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    result = search(
        capsys,
        monkeypatch,
        lambda given: value_of(given, GAMMA),
        "--param",
        "policy.actor.network_cfg.activation=elu,relu",
        parameter=f"{GAMMA}=0.5,0.9,0.99",
    )
    assert len({json.dumps(trial["params"]) for trial in result["trials"]}) == len(result["trials"]) == 6
    assert result["best"]["params"][GAMMA] == 0.99


@pytest.mark.parametrize(
    ("argv", "values"), [([], "0.5,0.9"), (["--trials", "3"], "0.5,0.9"), (["--trials", "12"], "0:1")]
)
def test_setting_is_not_trained_twice(
    argv: list[str], values: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []

    def train(arguments: Sequence[str]) -> float:
        trained.append(arguments)
        return 1.0

    for _ in range(2):  # the second search continues the first, which is finished
        result = search(capsys, monkeypatch, train, *argv, parameter=f"{GAMMA}={values}")
        assert (len(trained), len(result["trials"])) == (2, 2)


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (sweep.TrialFailedError, 0), (SystemError, 1)])
def test_setting_whose_training_ended_early_is_trained_again(
    error: type[BaseException], code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []

    def train(arguments: Sequence[str]) -> float:
        called.append(arguments)
        if len(called) == 2:
            raise error
        return float(value_of(arguments, GAMMA))

    monkeypatch.setattr(sweep, "score", lambda arguments, *_: train(arguments))
    values = f"{GAMMA}=0.5,0.7,0.9"
    assert main(["sweep", write_config(Path(), tiny_config()), "--param", values, "--json"]) == code
    capsys.readouterr()
    if error is SystemError:  # as a killed process leaves its trial
        (database,) = Path("sweeps").glob("*/study.db")
        with sqlite3.connect(database) as connection:
            connection.execute("UPDATE trials SET state = 'RUNNING' WHERE state = 'FAIL'")
        connection.close()
    result = search(capsys, monkeypatch, train, parameter=values)
    assert {trial["value"] for trial in result["trials"]} == {None, 0.5, 0.7, 0.9}


def test_failed_trial_does_not_end_trials_side_by_side(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    together, calls = threading.Barrier(2, timeout=20), []

    def train(arguments: Sequence[str]) -> float:
        together.wait()  # passes only where two are there at a time
        calls.append(arguments)
        if len(calls) == 1:
            raise TrialFailedError("exit code 1: out of luck")
        return 0.5

    monkeypatch.setattr(sys, "stderr", err := io.StringIO())
    result = search(capsys, monkeypatch, train, "--trials", "4", "--jobs", "2")
    assert err.getvalue().count(": failed: exit code 1: out of luck\n") == 1
    assert err.getvalue().count("\n") == 4
    assert sorted(str(trial["value"]) for trial in result["trials"]) == ["0.5", "0.5", "0.5", "None"]


def test_real_trial_trains_in_its_own_process(capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(Path(), tiny_config(trainer__iterations=1, trainer__enable_eval=False))
    argv = ["--param", "algorithm.cfg.batch_size=8", "--metric", "charts/SPS", "--trials", "1"]
    assert main(["sweep", config, *argv]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith("trial 0: ")
    assert "train_config.json algorithm.cfg.batch_size=8 trainer.seed=101" in captured.out
    assert all("iteration 1/1" in log.read_text(encoding="utf-8") for log in Path("sweeps/tiny").glob("*.log"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--param", "trainer.exp_name=a,b"], "trainer.exp_name: each training of a sweep has its own"),
        (["--param", "trainer.num_envs=2,4", "trainer.seed=5"], "trainer.seed: each training of a sweep has its own"),
        (["--param", "algorithm.cfg.learnin_rate=1e-4:1e-2:log"], "algorithm.cfg.learnin_rate: unknown key"),
    ],
)
def test_settings_that_no_training_takes_are_one_line(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", write_config(Path(), tiny_config()), *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"error: {problem}")
    assert not Path("sweeps").exists()


@pytest.mark.parametrize(
    ("parameter", "argv"),
    [
        (f"{GAMMA}=0.5:0.9", []),
        (f"{GAMMA}=0.5:0.99", ["trainer.iterations=3"]),
        (f"{GAMMA}=0.5:0.99", ["--metric", "eval/avg_reward"]),
    ],
)
def test_another_search_in_a_folder_is_another_study(
    parameter: str, argv: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    search(capsys, monkeypatch, lambda _: 1.0, "--trials", "1")
    other = search(capsys, monkeypatch, lambda _: 2.0, "--trials", "1", *argv, parameter=parameter)
    assert [trial["value"] for trial in other["trials"]] == [2.0]


def test_best_is_confirmed_by_a_quoted_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "score", lambda *_: 1.0)
    Path("my folder").mkdir()
    config = write_config(Path("my folder"), tiny_config())
    argv = ["sweep", config, "--param", "policy.actor.network_cfg.activation=elu", "--allow-import", "my_lab"]
    assert main(argv) == 0
    assert (
        "  embodichain train 'my folder/train_config.json' 'policy.actor.network_cfg.activation=\"elu\"' "
        "trainer.seed=101 --allow-import my_lab\n"
    ) in capsys.readouterr().out


def test_trainings_end_with_the_sweep() -> None:
    child = (
        "import os, signal, sys, time\nfrom embodichain.utils import system\nsystem._PERIOD = 0.01\n"
        "system.end_with_parent()\n"
        "def end(number, frame): open('saved', 'w'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\nopen('begun', 'w')\ntime.sleep(60)\n"
    )
    Path("child.py").write_text(f"#!{sys.executable}\n{child}")
    Path("child.py").chmod(0o755)
    code = "import sys; sys.executable = './child.py'\nfrom embodichain.cli import main\nsys.exit(main())"
    argv = ["sweep", write_config(Path(), tiny_config()), "--param", f"{GAMMA}=0.5:0.99"]
    process = subprocess.Popen([sys.executable, "-c", code, *argv], stderr=subprocess.PIPE)
    for file in ("begun", "saved"):
        deadline = time.monotonic() + 60
        while not Path(file).exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        if file == "begun":
            process.send_signal(signal.SIGINT)  # to the sweep alone
            process.communicate()
    assert Path("saved").exists()
    assert process.returncode == 130


def test_missing_extra_is_an_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["sweep", write_config(Path(), tiny_config()), "--param", f"{GAMMA}=0.5:0.9"]) == 2
    assert "-m pip install 'optuna" in capsys.readouterr().err
