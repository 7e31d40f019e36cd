"""``embodichain sweep``."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from embodichain.cli import main
from embodichain.tools import sweep
from embodichain.tools.search_space import Parameter, read_parameter
from embodichain.tools.sweep import Trainings, TrialFailedError
from embodichain.utils import ConfigError
from tests.agents.rl.fakes import tiny_config, write_config

pytest.importorskip("optuna")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "parameter"),
    [
        ("a.b=1:5", Parameter("a.b", low=1, high=5)),
        ("a=1e-4:1e-2:log", Parameter("a", low=1e-4, high=1e-2, log=True)),
        ("a=0.5:1", Parameter("a", low=0.5, high=1)),
        ("a=true,false", Parameter("a", choices=(True, False))),
        ("a=elu,relu,3", Parameter("a", choices=("elu", "relu", 3))),
    ],
)
def test_parameters_are_read(text: str, parameter: Parameter) -> None:
    assert read_parameter(text) == parameter


@pytest.mark.parametrize(
    "text",
    ["a", "a=", "=1:2", "a=1:2:3", "a=1:2:log:x", "a=x:y", "a=2:1", "a=0:1:log", "a=true:2", "a=NaN:1", "a=1:1e400"],
)
def test_other_forms_are_errors(text: str) -> None:
    with pytest.raises(ConfigError, match="--param"):
        read_parameter(text)


def search(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, train: Any, *argv: str
) -> dict[str, Any]:
    """Sweep with a function in place of the trainings' processes."""
    monkeypatch.setattr(sweep, "_train", train)
    config = write_config(Path(), tiny_config())
    code = main(["sweep", config, "--param", "algorithm.cfg.gamma=0.5:0.99", "--json", *argv])
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == int(result["best"] is None)
    return result


def gamma_of(overrides: list[str]) -> float:
    return next(float(text.partition("=")[2]) for text in overrides if text.startswith("algorithm.cfg.gamma="))


def test_best_trial_is_found_with_the_middle_of_its_seeds_and_the_study_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    def train(trainings: Any, config: str, overrides: list[str], *others: Any) -> float:
        calls.append(overrides)
        seed = next(int(text[-1]) for text in overrides if text.startswith("trainer.seed="))
        return gamma_of(overrides) + 0.1 * seed

    first = search(capsys, monkeypatch, train, "--trials", "3", "--seeds", "2")
    assert len(calls) == 6
    values = {trial["params"]["algorithm.cfg.gamma"]: trial["value"] for trial in first["trials"]}
    assert all(value == pytest.approx(gamma + 0.15) for gamma, value in values.items())
    assert first["best"]["params"]["algorithm.cfg.gamma"] == max(values)
    assert re.fullmatch(r"trainer\.exp_name=tiny_sweep_[0-9a-f]{4}_0002_2", calls[-1][-2])
    second = search(capsys, monkeypatch, train, "--trials", "1", "--seeds", "2")
    assert [trial["number"] for trial in second["trials"]] == [0, 1, 2, 3]


def test_trials_run_side_by_side_and_one_that_fails_does_not_end_the_search(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(2, timeout=20)

    def train(
        trainings: Any, config: str, overrides: Any, prefixes: Any, log: Path, run_name: str, metric: str
    ) -> float:
        together.wait()  # passes only where two are there at a time
        if run_name.endswith("0000_1"):
            raise TrialFailedError("exit code 1: out of luck")
        return 0.5

    result = search(capsys, monkeypatch, train, "--trials", "4", "--jobs", "2")
    assert [trial["value"] for trial in result["trials"]] == [None, 0.5, 0.5, 0.5]


def test_real_trial_trains_in_a_process_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(Path(), tiny_config(trainer__iterations=1, trainer__enable_eval=False))
    argv = ["sweep", config, "--param", "algorithm.cfg.batch_size=8", "--trials", "1", "--metric", "charts/SPS"]
    assert main(argv) == 0
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith("trial 0: ")
    assert "train_config.json algorithm.cfg.batch_size=8 trainer.seed=101" in captured.out
    (folder,) = Path("outputs").iterdir()
    assert re.match(r"tiny_sweep_[0-9a-f]{4}_0000_1_", folder.name)
    (log,) = Path("sweeps/tiny").glob("tiny_sweep_*_0000_1.log")
    assert "iteration 1/1" in log.read_text(encoding="utf-8")


def test_sweeps_with_other_folders_do_not_read_each_others_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def train(trainings: Any, config: str, overrides: Any, prefixes: Any, log: Path, run_name: str, *_: Any) -> float:
        names.append(run_name)
        return 0.5

    for folder in ("one", "two", "one"):
        search(capsys, monkeypatch, train, "--trials", "1", "--out", folder)
    assert len(set(names)) == 3
    assert names[0].rpartition("_0000")[0] == names[2].rpartition("_0001")[0]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--param", "trainer.seed=1:9"], "trainer.seed: each training of a sweep has its own; --seeds says how many"),
        (["--param", "trainer.exp_name=a,b"], "trainer.exp_name: each training of a sweep has its own; --out names"),
        (["--param", "trainer.num_envs=2,4", "trainer.seed=5"], "trainer.seed: each training of a sweep has its own"),
        (
            ["--param", "trainer.num_envs=2,4", "--param", "trainer.num_envs=6,8"],
            "--param: trainer.num_envs is there 2",
        ),
    ],
)
def test_settings_that_a_sweep_cannot_search_are_one_line(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", write_config(Path(), tiny_config()), *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"error: {problem}")
    assert not Path("sweeps").exists()


@pytest.mark.parametrize("parameter", ["algorithm.cfg.learnin_rate=1e-4:1e-2:log", "trainer.buffer_size=-2,-1"])
def test_parameter_of_which_no_value_can_be_trained_with_is_an_error_before_the_first_trial(
    parameter: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", write_config(Path(), tiny_config()), "--param", parameter]) == 2
    path = parameter.partition("=")[0]
    assert capsys.readouterr().err.startswith(f"error: --param: {path}: ")
    assert not Path("sweeps").exists()


def test_parameter_with_some_values_that_can_be_trained_with_is_searched_with_a_warning_of_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    result = search(capsys, monkeypatch, lambda *_: 1.0, "--param", "trainer.buffer_size=-1,4", "--trials", "1")
    assert result["best"]["value"] == 1
    (line,) = caplog.messages
    assert line.startswith(
        "--param: trials with these values fail: trainer.buffer_size: Input should be greater than 0"
    )


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (
            ["--param", "algorithm.cfg.gamma=0.5:0.9"],
            "--param algorithm.cfg.gamma=0.5:0.99, here algorithm.cfg.gamma=0.5:0.9",
        ),
        (["trainer.iterations=3"], "overrides none, here trainer.iterations=3"),
        (["--metric", "eval/avg_reward"], "--metric eval/success_rate, here eval/avg_reward"),
    ],
)
def test_study_of_another_search_is_not_continued(
    argv: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    search(capsys, monkeypatch, lambda *_: 1.0, "--trials", "1")
    parameter = [] if "--param" in argv else ["--param", "algorithm.cfg.gamma=0.5:0.99"]
    assert main(["sweep", write_config(Path(), tiny_config()), *parameter, *argv]) == 2
    assert told in capsys.readouterr().err
    assert main(["sweep", "train_config.json", *parameter, *argv, "--out", "other", "--trials", "1"]) == 0


def test_study_of_a_config_that_has_changed_is_not_continued(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    search(capsys, monkeypatch, lambda *_: 1.0, "--trials", "1")
    argv = ["--param", "algorithm.cfg.gamma=0.5:0.99", "--trials", "1"]
    write_config(Path(), tiny_config(trainer__buffer_size=8))
    assert main(["sweep", "train_config.json", *argv]) == 2
    assert "has the trials of another search: settings with the digest " in capsys.readouterr().err
    write_config(Path(), tiny_config())
    assert main(["sweep", "train_config.json", *argv]) == 0


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (
            "eval/success_rate",
            "There are: eval/avg_reward, eval/avg_length. The task has no success: take --metric eval/avg_reward\n",
        ),
        ("charts/success_rate_avg_100", "The task has no success: take --metric eval/avg_reward\n"),
        ("eval/avg_rewrd", "'eval/avg_rewrd' was never logged. There are: eval/avg_reward, eval/avg_length\n"),
    ],
)
def test_metric_that_a_task_lacks_is_refused_before_the_first_trial(
    capsys: pytest.CaptureFixture[str], metric: str, message: str
) -> None:
    env = {"id": "InvertedPendulumV5RL", "max_episode_steps": 4}
    config = write_config(Path(), tiny_config(trainer__gym_config=env))
    argv = ["sweep", config, "--param", "algorithm.cfg.gamma=0.5:0.9", "--trials", "1", "--metric"]
    assert main([*argv, metric]) == 2
    assert message in capsys.readouterr().err
    assert not Path("outputs").exists()


def test_success_that_random_actions_do_not_show_is_a_warning_before_the_first_trial(
    capsys: pytest.CaptureFixture[str],
) -> None:
    env = {"id": "gymnasium:Pendulum-v1", "max_episode_steps": 4}
    config = write_config(Path(), tiny_config(trainer__gym_config=env))
    assert main(["sweep", config, "--param", "algorithm.cfg.gamma=0.5:0.9", "--trials", "1"]) == 2
    err = capsys.readouterr().err
    assert "where 'gymnasium:Pendulum-v1' never says it, take --metric eval/avg_reward\n" in err
    assert err.endswith("The task has no success: take --metric eval/avg_reward\n")


def test_success_that_a_task_without_evaluations_lacks_is_refused_after_the_first_training(
    capsys: pytest.CaptureFixture[str],
) -> None:
    env = {"id": "gymnasium:Pendulum-v1", "max_episode_steps": 4}
    config = write_config(Path(), tiny_config(trainer__gym_config=env, trainer__enable_eval=False))
    argv = ["sweep", config, "--param", "algorithm.cfg.batch_size=8", "--metric", "charts/success_rate_avg_100"]
    assert main(argv) == 2
    assert "The task has no success: take --metric charts/episode_reward_avg_100\n" in capsys.readouterr().err


def test_metric_of_evaluations_that_a_task_has_is_searched(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    metric = "eval/metrics/pole_angle"
    assert search(capsys, monkeypatch, lambda *_: 1.0, "--metric", metric, "--trials", "1")["best"]["value"] == 1


def test_continued_study_tries_what_an_uninterrupted_one_would(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def values(*argv: str) -> list[Any]:
        result = search(capsys, monkeypatch, lambda *given: gamma_of(given[2]), *argv)
        return [trial["params"] for trial in result["trials"]]

    values("--out", "parts", "--trials", "11")
    parts = values("--out", "parts", "--trials", "3")  # from the eleventh on the trials before it count
    assert parts == values("--out", "whole", "--trials", "14")
    assert len({str(each) for each in parts}) == 14


def test_best_is_confirmed_by_a_command_with_the_options_and_quotes_that_it_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_train", lambda *_: 1.0)
    Path("my folder").mkdir()
    config = write_config(Path("my folder"), tiny_config())
    argv = ["sweep", config, "--param", "policy.actor.network_cfg.activation=elu", "--trials", "1"]
    assert main([*argv, "--allow-import", "my_lab"]) == 0
    assert (
        "  embodichain train 'my folder/train_config.json' 'policy.actor.network_cfg.activation=\"elu\"' "
        "trainer.seed=101 --allow-import my_lab\n"
    ) in capsys.readouterr().out


def test_search_without_a_trial_that_finished_says_only_that(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> float:
        raise TrialFailedError("exit code 1: out of luck")

    monkeypatch.setattr(sweep, "_train", fail)
    argv = ["sweep", write_config(Path(), tiny_config()), "--param", "algorithm.cfg.gamma=0.5:0.9", "--trials", "2"]
    assert main(argv) == 1
    assert capsys.readouterr().out == "all 2 trials failed\nstudy    sweeps/tiny\n"


def test_metric_that_no_training_logs_ends_the_search(capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(Path(), tiny_config(trainer__iterations=1, trainer__enable_eval=False))
    argv = ["sweep", config, "--param", "algorithm.cfg.batch_size=8", "--metric"]
    assert main([*argv, "charts/SPPS", "--trials", "3"]) == 2
    assert "'charts/SPPS' was never logged. There are: " in capsys.readouterr().err
    assert len(list(Path("outputs").iterdir())) == 1
    assert main([*argv, "charts/SPS", "--trials", "1"]) == 0  # the folder has no value yet


def test_training_that_fails_is_a_failed_trial_with_its_last_line(tmp_path: Path) -> None:
    log = tmp_path / "trial.log"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", str(script := tmp_path / "python"))
        script.write_text("#!/bin/sh\necho warning\necho error: out of luck\nexit 2\n", encoding="utf-8")
        script.chmod(0o755)
        with pytest.raises(TrialFailedError, match="exit code 2: error: out of luck"):
            sweep._train(Trainings(), "config.json", [], [], log, "x", "eval/success_rate")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_is_handed_on_to_the_trainings_and_no_more_are_begun(
    number: int, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    begun: list[None] = []
    script = (
        "import os, signal, sys, time; signal.signal({0}, lambda *_: sys.exit(5)); os.kill({1}, {0}); time.sleep(60)"
    )

    def train(trainings: Trainings, *others: Any) -> float:
        begun.append(None)
        command = [sys.executable, "-c", script.format(int(number), os.getpid())]
        with Path("log").open("w") as log:
            ended.append(trainings.run(command, log))
        return 1.0

    monkeypatch.setattr(sweep, "_train", train)
    argv = ["sweep", write_config(Path(), tiny_config()), "--param", "algorithm.cfg.gamma=0.5:0.99", "--trials", "3"]
    assert main(argv) == code
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted"
    assert (begun, ended) == ([None], [5])
    assert signal.getsignal(number) is (signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def test_training_of_a_sweep_ends_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os, sys; sys.exit(os.environ['EMBODICHAIN_PARENT'] != str(os.getppid()))"]
    with (tmp_path / "log").open("w") as log:
        assert Trainings().run(command, log) == 0


def test_no_evaluation_to_go_by_and_a_missing_extra_are_errors(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ["sweep", write_config(Path(), tiny_config()), "--param", "algorithm.cfg.gamma=0.5:0.9"]
    assert main([*argv, "trainer.enable_eval=false"]) == 2
    assert "trainer.enable_eval is false" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(argv) == 2
    assert "-m pip install 'optuna" in capsys.readouterr().err
