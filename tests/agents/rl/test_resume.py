"""Runs that are stopped and go on: nothing about them may differ from runs that were not."""

import copy
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embodichain.agents.rl.checkpoint.saved_run import RunLock
from embodichain.agents.rl.train import main, train_from_config
from embodichain.agents.rl.trainer.evaluation import Evaluator
from embodichain.agents.rl.trainer.trainer import Trainer
from embodichain.cli import main as cli
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl import CartPoleEnv
from embodichain.utils import ConfigError
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import (
    CART_POLE_ENV,
    PUSH_CUBE_ENV,
    assert_same,
    last_checkpoint,
    only_run,
    read_metrics,
    read_tensorboard,
    tiny_config,
    write_config,
)
from tests.lab.legs import GO2_OBSERVED

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("own_folder")]

ABSENT = (
    "absent: no such run: must be a run's folder, that folder with /best, a checkpoint's file, or 'latest' or 'best' "
    "of the run in ./outputs that saved last"
)
TIMES = ("wall_time", "charts/SPS", "time/")


def env_config(path: Path, threads: int) -> dict[str, Any]:
    env = load_json(path) | {"max_episode_steps": 7}
    env["env"]["sim_cfg"] = {"num_threads": threads}
    params = {"qpos_range": [[-0.1], [0.1]], "joint_ids": [0]}
    env["env"]["events"]["push"] = {
        "func": "randomize_robot_qpos",
        "mode": "interval",
        "interval_step": 10,
        "params": params,
    }
    return env


def push_cube(threads: int) -> dict[str, Any]:
    """PPO with a normaliser, a schedule of the learning rate, and terms that remember the step before."""
    return tiny_config(
        trainer__gym_config=env_config(PUSH_CUBE_ENV, threads),
        trainer__iterations=4,
        trainer__eval_freq="3 it",
        algorithm__cfg={"n_epochs": 2, "batch_size": 4, "lr_schedule": "linear"},
    )


def cart_pole(threads: int) -> dict[str, Any]:
    """GRPO with a reference policy, on episodes that go on from one rollout to the next."""
    algorithm = {"n_epochs": 2, "batch_size": 8, "group_size": 2, "kl_coef": 0.1}
    algorithm |= {"reset_every_rollout": False, "truncate_at_first_done": False}
    return tiny_config(
        trainer__gym_config=env_config(CART_POLE_ENV, threads),
        trainer__num_envs=4,
        trainer__iterations=4,
        trainer__eval_freq="3 it",
        policy__name="actor_only",
        policy__critic=None,
        algorithm={"name": "grpo", "cfg": algorithm},
    )


def choices(threads: int) -> dict[str, Any]:
    """PPO of discrete actions."""
    env = env_config(CART_POLE_ENV, threads)
    env["env"]["actions"] = {"move": {"func": "ChoiceTerm", "params": {"choices": [[-0.1], [0.0], [0.1]]}}}
    return tiny_config(trainer__gym_config=env, trainer__iterations=4, trainer__eval_freq="3 it")


def legs(threads: int) -> dict[str, Any]:
    """PPO of a quadruped: noise, delays, histories, commands drawn within episodes, contact times."""
    env = copy.deepcopy(GO2_OBSERVED) | {"max_episode_steps": 7}
    env["env"]["sim_cfg"]["num_threads"] = threads
    env["env"]["commands"]["base_velocity"]["resampling_time"] = [0.04, 0.1]  # 2 to 5 control steps
    env["env"]["rewards"]["air"] = {"func": "feet_air_time", "params": {"sensor": "feet"}}
    env["sensor"] = [{"sensor_type": "Contact", "uid": "feet", "link_names": [".*_foot"]}]
    return tiny_config(trainer__gym_config=env, trainer__iterations=4, trainer__eval_freq="3 it")


def rows(run: Path) -> list[dict[str, float]]:
    lines = read_metrics(run)
    return [{name: value for name, value in line.items() if not name.startswith(TIMES)} for line in lines]


def assert_same_runs(ours: Path, theirs: Path) -> None:
    assert rows(ours) == rows(theirs)
    left_out = ("train_seconds", "config")
    a, b = ({k: v for k, v in last_checkpoint(run).items() if k not in left_out} for run in (ours, theirs))
    assert_same(a, b)


class Interrupt:
    """Sends this process a signal in the given step of the environments, counted from now on; evaluations count too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
        self.count = 0
        original = EmbodiedEnv.step

        def counting(env: EmbodiedEnv, action: Any) -> Any:
            self.count += 1
            if self.count == step:
                os.kill(os.getpid(), signal.SIGTERM)
            return original(env, action)

        monkeypatch.setattr(EmbodiedEnv, "step", counting)


# Each environment takes 16 steps of the warm-up and 4 an iteration: the 26th is in the third iteration. At the second's
# end, after 24 steps, episodes of 7 have 3 behind them, and the event at every 10th is 6 ahead.
STOP = 26


def run_whole(config: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in the folder ``whole`` without a stop."""
    Path("whole").mkdir()
    with monkeypatch.context() as patch:
        patch.chdir("whole")
        assert main(["--config", f"../{config}"]) == 0
    return only_run(Path("whole"))


def run_until(config: str, monkeypatch: pytest.MonkeyPatch, step: int = STOP) -> Path:
    """Run until a signal comes in a step."""
    with monkeypatch.context() as patch:
        interrupt = Interrupt(patch, step)
        assert main(["--config", config]) == 143
    assert interrupt.count == step  # no step was made after it
    return only_run()


@pytest.mark.parametrize(
    ("make", "threads", "is_new_process"),
    [
        (push_cube, 1, False),
        (push_cube, 2, False),
        (cart_pole, 1, False),
        (cart_pole, 2, True),
        (choices, 1, False),
        (legs, 1, False),
    ],
)
def test_stopped_and_resumed_run_equals_one_that_was_not(
    make: Any, threads: int, is_new_process: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(Path(), make(threads))
    whole = run_whole(config, monkeypatch)
    run = run_until(config, monkeypatch)
    assert len(rows(run)) == 2
    if is_new_process:
        # under the module's newer name, too
        subprocess.run([sys.executable, "-m", "embodichain.learning.rl.train", "--resume", "latest"], check=True)
    else:
        torch.manual_seed(7)  # what the process draws in the meantime is of no account
        np.random.seed(7)  # noqa: NPY002
        assert main(["--resume", str(run)]) == 0
    assert_same_runs(run, whole)
    scalars = read_tensorboard(run / "logs")
    # Sorted: files of one process and one second are read in the order of a counter that is not padded.
    assert sorted(step for step, _ in scalars["train/policy_loss"]) == [row["step"] for row in rows(run)]
    summaries = [json.loads((folder / "summary.json").read_text(encoding="utf-8")) for folder in (run, whole)]
    assert summaries[0]["success_interval_95"] == summaries[1]["success_interval_95"]


def test_another_number_of_threads_is_one_warning(capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(Path(), tiny_config(trainer__torch_threads=2))
    assert main(["--config", config]) == 0
    run = only_run()
    assert last_checkpoint(run)["num_threads"] == 2
    capsys.readouterr()
    assert main(["--resume", str(run), "trainer.iterations=3", "trainer.torch_threads=1"]) == 0
    text = capsys.readouterr().err
    assert text.count("[WARNING]") == 1
    assert "computed its updates with 2 threads, and now does with 1 thread:" in text
    assert "With trainer.torch_threads=2 it is" in text
    assert main(["--resume", str(run), "trainer.iterations=4", "trainer.torch_threads=1"]) == 0
    assert "[WARNING]" not in capsys.readouterr().err


# --- small runs of CartPole: 2 environments, 4 steps an iteration ---


def test_resume_from_an_older_checkpoint_replaces_later_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_config(Path(), tiny_config(trainer__iterations=3, trainer__save_freq="1 it"))
    assert main(["--config", config]) == 0
    run = only_run()
    shutil.copytree(run, "before")
    assert main(["--resume", str(run / "checkpoints" / "tiny_step_8.pt")]) == 0
    assert_same_runs(run, Path("before"))
    assert sorted(step for step, _ in read_tensorboard(run / "logs")["charts/SPS"]) == [8, 16, 24]
    wall_times = [row["wall_time"] for row in read_metrics(run)]
    assert wall_times == sorted(wall_times)


def test_continued_run_has_no_summary_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--config", write_config(Path(), tiny_config())]) == 0
    seen: list[bool] = []
    iterate = Trainer._iterate

    def looked(self: Trainer) -> dict[str, float]:
        seen.append((only_run() / "summary.json").exists())
        return iterate(self)

    monkeypatch.setattr(Trainer, "_iterate", looked)
    assert main(["--resume", "latest", "trainer.iterations=4"]) == 0
    assert seen == [False, False]
    assert json.loads((only_run() / "summary.json").read_text())["env_steps"] == 32


def test_settings_that_may_change_are_taken_by_a_resume() -> None:
    config = write_config(Path(), tiny_config())
    assert main(["--config", config]) == 0
    camera = {"func": "record_camera_data", "mode": "interval", "interval_step": 1}
    later = write_config(
        Path(),
        tiny_config(
            trainer__enable_eval=False, trainer__keep_last=1, trainer__events={"train": {"look": camera}, "eval": {}}
        ),
        "later.json",
    )
    assert main(["--config", later, "--resume", "latest", "trainer.iterations=4"]) == 0
    run = only_run()
    assert [row["step"] for row in rows(run)] == [8, 16, 24, 32]
    kept = sorted(path.name for path in (run / "checkpoints").glob("*.pt"))
    assert kept == ["tiny_step_16.pt", "tiny_step_32.pt"]  # the best one, and the last one
    assert json.loads((run / "summary.json").read_text())["episodes"] == 0  # of this policy, nothing was evaluated
    assert json.loads((run / "config.json").read_text(encoding="utf-8"))["trainer"]["iterations"] == 4


def test_finished_run_returns_its_summary_again(capsys: pytest.CaptureFixture[str]) -> None:
    summary = train_from_config(write_config(Path(), tiny_config()))
    before = {path: path.read_bytes() for path in only_run().rglob("*") if path.is_file()}
    capsys.readouterr()
    assert train_from_config(None, resume=summary["run_folder"]) == summary
    message = "all 2 iterations are finished; to continue, raise trainer.iterations: trainer.iterations=4"
    assert message in capsys.readouterr().err
    assert {path: path.read_bytes() for path in only_run().rglob("*") if path.is_file()} == before
    only_run().rename("moved")
    capsys.readouterr()
    assert main(["--resume", "moved"]) == 0
    printed = capsys.readouterr().out
    assert "moved/summary.json" in printed
    assert "outputs" not in printed


def test_changed_environment_file_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    env = env_config(CART_POLE_ENV, 1)
    Path("mine").mkdir()
    path = Path("mine/env.json")  # beside the training config, which is not in the working directory
    path.write_text(json.dumps(env), encoding="utf-8")
    assert main(["--config", write_config(Path("mine"), tiny_config(trainer__gym_config="env.json"))]) == 0
    capsys.readouterr()
    env["env"]["rewards"]["calm"]["weight"] = 9
    path.write_text(json.dumps(env), encoding="utf-8")
    assert main(["--resume", "latest", "trainer.iterations=3"]) == 0
    change = "env.rewards.calm.weight: 0.05 in the run, 9.0 now"
    assert f"the run continues with its own config; mine/env.json differs: {change}" in capsys.readouterr().err


def test_task_with_another_observation_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--config", write_config(Path(), tiny_config(trainer__enable_eval=False))]) == 0
    base = CartPoleEnv._extend_obs

    def more(self: CartPoleEnv, obs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return base(self, obs) | {"more": torch.zeros(self.num_envs, 2)}

    monkeypatch.setattr(CartPoleEnv, "_extend_obs", more)
    capsys.readouterr()
    assert main(["--resume", "latest", "trainer.iterations=3"]) == 2
    assert cli(["eval", "latest", "--episodes", "1"]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    for line, place in zip(errors, ("tiny_step_16.pt", "tiny_step_16.pt"), strict=True):
        assert place in line
        assert "does not fit the policy" in line
        assert "actor.0.weight" in line


def test_damaged_checkpoint_gives_way_to_the_one_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(Path(), tiny_config(trainer__iterations=3, trainer__save_freq="1 it"))
    assert main(["--config", config]) == 0
    run = only_run()
    shutil.copytree(run, "before")
    latest = run / "checkpoints" / "tiny_step_24.pt"
    latest.write_bytes(latest.read_bytes()[:-1000])
    assert main(["--resume", "latest"]) == 0
    err = capsys.readouterr().err
    assert f"{latest}: damaged" in err
    assert f"continuing from {run}/checkpoints/tiny_step_16.pt" in err
    assert_same_runs(run, Path("before"))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("latest", "no run in {here}/outputs has a checkpoint"),
        ("absent/best", ABSENT.replace("absent", "absent/best")),
        ("empty", ABSENT.replace("absent", "empty")),
    ],
)
def test_resume_of_what_is_not_there_is_one_message(
    target: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty").mkdir()
    assert main(["--resume", target]) == 2
    assert capsys.readouterr().err == f"error: {message.format(here=Path.cwd())}\n"
    assert os.listdir() == ["empty"]


def test_latest_is_of_the_experiment_that_a_config_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", write_config(Path(), tiny_config(trainer__enable_eval=False))]) == 0
    other = write_config(Path(), tiny_config(trainer__exp_name="tin"), "other.json")
    assert main(["--config", other, "--resume", "latest"]) == 2
    assert "error: no run of 'tin' in " in capsys.readouterr().err


def test_second_resume_is_refused_and_names_the_holder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", write_config(Path(), tiny_config(trainer__enable_eval=False))]) == 0
    run = only_run()
    before = (run / "metrics.jsonl").read_bytes()
    with RunLock() as lock:
        lock.take(run)
        capsys.readouterr()
        for target in ("latest", str(run), str(next(run.glob("checkpoints/*.pt")))):
            assert main(["--resume", target, "trainer.iterations=9"]) == 2
            (line,) = capsys.readouterr().err.splitlines()
            who = f"process {os.getpid()} on {socket.gethostname()} trains in this folder"
            assert line == f"error: {run}: {who}; wait for its end, or stop it"
        assert cli(["eval", str(run), "--episodes", "2"]) == 0  # who only reads is not kept out
        assert cli(["report", str(run)]) == 0
    assert (run / "metrics.jsonl").read_bytes() == before
    assert main(["--resume", str(run), "trainer.iterations=3"]) == 0


def test_training_holds_its_folders_lock_from_the_beginning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused: list[int] = []
    evaluate = Evaluator.run

    def resume_meanwhile(self: Evaluator, *args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(Evaluator, "run", evaluate)
        with RunLock() as lock, pytest.raises(ConfigError, match="trains in this folder"):
            lock.take(only_run())
        refused.append(1)
        return evaluate(self, *args, **kwargs)

    monkeypatch.setattr(Evaluator, "run", resume_meanwhile)
    assert main(["--config", write_config(Path(), tiny_config())]) == 0
    assert refused == [1]


@pytest.mark.draws
def test_resume_of_a_finished_run_writes_its_missing_files() -> None:
    assert main(["--config", write_config(Path(), tiny_config(trainer__enable_eval=False))]) == 0
    run = only_run()
    there = sorted(os.listdir(run))
    before = (run / "metrics.jsonl").read_bytes()
    for name in ("report.html", "learning_curve.png"):
        (run / name).unlink()
    (run / "report.html.999999999-999999999.tmp").write_bytes(b"half")
    assert main(["--resume", str(run)]) == 0
    assert sorted(os.listdir(run)) == there
    (run / "summary.json").unlink()
    assert main(["--resume", str(run)]) == 0
    assert sorted(os.listdir(run)) == there
    assert (run / "metrics.jsonl").read_bytes() == before


# --- signals ---


def test_evaluation_is_stopped_too_and_its_iteration_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_config(Path(), tiny_config(trainer__eval_freq="2 it"))
    whole = run_whole(config, monkeypatch)
    run = run_until(config, monkeypatch, 26)  # the second step of the evaluation after 16 + 2 x 4
    assert [row["step"] for row in rows(run)] == [8]
    assert main(["--resume", str(run)]) == 0
    assert_same_runs(run, whole)


def test_signal_in_the_first_iteration_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(Path(), tiny_config())
    Interrupt(monkeypatch, 18)
    assert main(["--config", config]) == 143
    assert os.listdir() == [config]
    assert "checkpoint" not in capsys.readouterr().err
