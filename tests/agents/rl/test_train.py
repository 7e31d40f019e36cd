"""Whole runs of CartPole, as small as they can be: 2 environments, 4 steps an iteration, 2 iterations."""

import errno
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
import torch
from matplotlib.image import imread

from embodichain.agents.rl import run_folder, train
from embodichain.agents.rl.algo import PPO
from embodichain.agents.rl.build import open_run
from embodichain.agents.rl.checkpoint import files
from embodichain.agents.rl.checkpoint.files import load_checkpoint, save_checkpoint
from embodichain.agents.rl.checkpoint.saved_run import find_run
from embodichain.agents.rl.distributed import launch
from embodichain.agents.rl.distributed.launch import FailedProcessError
from embodichain.agents.rl.metrics.sinks import RunLog
from embodichain.agents.rl.train import main, train_from_config
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils import doors, write_json
from embodichain.utils.utility import load_json
from tests.agents.rl.fakes import CART_POLE_ENV, only_run, read_metrics, read_tensorboard, tiny_config, write_config

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("own_folder")]


def run_main(*arguments: str, **changes: Any) -> int:
    return main(["--config", write_config(Path(), tiny_config(**changes)), *arguments])


def run_train(**changes: Any) -> None:
    """Train outside the net that turns exceptions into lines."""
    train_from_config(write_config(Path(), tiny_config(**changes)))


def test_config_of_the_oldest_layout_trains_and_resumes(capsys: pytest.CaptureFixture[str]) -> None:
    network = {"type": "mlp", "hidden_sizes": [4], "activation": "relu"}
    config = {
        "runtime": {"exp_name": "oldest", "cuda": False, "headless": True, "iterations": 1, "rollout_steps": 4},
        "env": {
            "id": "CartPoleRL",
            "cfg": {"num_envs": 2, "obs_mode": "state", "episode_length": 6, "action_scale": 0.2},
        },
        "policy": {"name": "actor_critic", "cfg": {}, "actor": network, "critic": network},
        "algorithm": {"name": "ppo", "cfg": {"batch_size": 8}},
    }
    assert main(["--config", write_config(Path(), config)]) == 0
    record = load_json(only_run() / "config.json")
    assert record["gym_config"]["env"]["actions"]["delta_qpos"]["params"] == {"scale": 0.2}
    before = {path: path.read_bytes() for path in only_run().rglob("*") if path.is_file()}
    assert main(["--resume", str(only_run()), "trainer.iterations=2", "env.rewards.calm.weight=0.1"]) == 2
    assert {path: path.read_bytes() for path in only_run().rglob("*") if path.is_file()} == before
    assert "gym_config.env.rewards.calm.weight: 0.05 in the run, 0.1 now" in capsys.readouterr().err
    assert main(["--resume", str(only_run()), "trainer.iterations=2"]) == 0
    with open_run(find_run(str(only_run())), 1) as run:
        assert run.config.env.max_episode_steps == 6


def test_updates_have_the_threads_that_the_config_says(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = torch.get_num_threads(), []
    update = PPO.update

    def noting(self: PPO, rollout: Any) -> dict[str, float]:
        seen.append(torch.get_num_threads())
        return update(self, rollout)

    monkeypatch.setattr(PPO, "update", noting)
    try:
        assert run_main("trainer.torch_threads=3", "trainer.enable_eval=false") == 0
    finally:
        torch.set_num_threads(before)
    assert seen == [3, 3]


def test_run_without_a_video_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main("trainer.enable_eval=false", "trainer.iterations=1") == 0
    out = capsys.readouterr().out
    assert "video           none: nothing was evaluated\n" in out
    assert "success rate" not in out


@pytest.mark.draws
def test_run_ends_well_and_leaves_what_it_promises(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main("trainer.seed=3") == 0
    folder = only_run()
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    # 2 iterations x 4 steps x 2 environments
    assert (summary["env_steps"], summary["episodes"]) == (16, 3)
    assert 0 <= summary["success_rate"] <= 1
    low, high = summary["success_interval_95"]
    assert low <= summary["success_rate"] <= high
    assert 0 < summary["train_seconds"] < summary["wall_seconds"] < 60
    assert 0 < summary["eval_seconds"] < summary["wall_seconds"]
    assert summary["render_seconds"] == 0  # it has no video
    assert 50 < summary["peak_memory_mb"] < 20_000
    assert summary["run_folder"] == str(folder)
    assert summary["video"] is None
    assert list(summary["metrics"]) == ["pole_angle", "pole_angle_at_end"]
    assert 0 < summary["metrics"]["pole_angle"] < 1

    content = load_checkpoint(summary["checkpoint"])
    assert Path(summary["checkpoint"]).name == "tiny_step_16.pt"
    assert content["global_step"] == 16
    assert imread(summary["learning_curve"]).ndim == 3
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config == content["config"]
    assert config["trainer"]["seed"] == 3

    rows = read_metrics(folder)
    assert [row["step"] for row in rows] == [8, 16]
    assert rows[0]["wall_time"] <= rows[1]["wall_time"]
    named = {"train/policy_loss", "rewards/calm", "rewards/upright", "metrics/pole_angle", "charts/SPS"}
    assert named <= set(rows[0])
    assert {"eval/avg_reward", "eval/avg_length", "eval/success_rate"} <= set(rows[1])
    assert named <= set(read_tensorboard(folder / "logs"))

    printed = capsys.readouterr()
    assert printed.err == ""
    for text in ("iteration 2/2", "success rate", "training time", "tiny_step_16.pt", "learning_curve.png"):
        assert text in printed.out
    assert f"report          {folder}/report.html\n" in printed.out
    assert f"evaluations     {summary['eval_seconds']:.1f} s\n" in printed.out
    assert "success of 3 episodes" in (folder / "report.html").read_text(encoding="utf-8")
    machine = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
    assert machine["cores"] >= machine["processes"] == 1


# --- ends that are not planned ---


class Spy:
    """Counts what is closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.closed: list[str] = []
        for owner, name in ((RunLog, "log"), (EmbodiedEnv, "env")):
            original = owner.close

            def close(this: Any, original: Any = original, name: str = name) -> None:
                self.closed.append(name)
                original(this)

            monkeypatch.setattr(owner, "close", close)


def test_interrupted_training_saves_and_closes_everything(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    update, numbers = PPO.update, iter((1, 2))

    def interrupted(self: PPO, rollout: Any) -> dict[str, float]:
        if next(numbers) == 2:
            raise KeyboardInterrupt
        return update(self, rollout)

    spy = Spy(monkeypatch)
    monkeypatch.setattr(PPO, "update", interrupted)
    assert run_main() == 130
    (checkpoint,) = (only_run() / "checkpoints").glob("*.pt")
    assert (checkpoint.name, load_checkpoint(checkpoint)["global_step"]) == ("tiny_step_8.pt", 8)
    assert [row["step"] for row in read_metrics(only_run())] == [8]
    assert spy.closed == ["log", "env", "env"]
    saved = f"checkpoint saved: {checkpoint}; 'embodichain resume {only_run()}' continues from there"
    assert capsys.readouterr().err == f"[INFO] {saved}\ninterrupted\n"


def test_interrupt_before_the_training_claims_no_checkpoint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*args: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "build_learner", interrupt)
    spy = Spy(monkeypatch)
    assert run_main() == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert spy.closed == ["env", "env"]
    assert not Path("outputs").exists()


@pytest.mark.parametrize("normalizes", [True, False], ids=["in the warm-up", "in the first iteration"])
def test_fault_in_the_first_iteration_leaves_no_folder(monkeypatch: pytest.MonkeyPatch, normalizes: bool) -> None:
    def fail(self: EmbodiedEnv, action: Any) -> Any:
        raise ZeroDivisionError("of a bug")

    spy = Spy(monkeypatch)
    monkeypatch.setattr(EmbodiedEnv, "step", fail)
    with pytest.raises(ZeroDivisionError, match="of a bug"):
        run_train(policy__normalize_obs=normalizes)
    assert spy.closed == ["log", "env", "env"]
    assert not Path("outputs").exists()


def test_fault_in_the_first_update_leaves_what_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def record_and_fail(self: PPO, rollout: Any) -> Any:
        (only_run() / "recorded.npz").touch()
        raise ZeroDivisionError("of a bug")

    monkeypatch.setattr(PPO, "update", record_and_fail)
    with pytest.raises(ZeroDivisionError, match="of a bug"):
        run_train(trainer__enable_eval=False)
    assert list(only_run().rglob("*.npz"))


def test_fault_in_the_evaluation_is_raised_after_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: EmbodiedEnv, folder: Path, label: str, *given: float) -> None:
        if label == "step_16":
            raise ZeroDivisionError("of a bug")

    spy = Spy(monkeypatch)
    monkeypatch.setattr(EmbodiedEnv, "start_recording", fail)
    with pytest.raises(ZeroDivisionError, match="of a bug"):
        run_train()
    (checkpoint,) = (only_run() / "checkpoints").glob("*.pt")
    assert load_checkpoint(checkpoint)["global_step"] == 8
    assert spy.closed == ["log", "env", "env"]


# --- the command line ---


def with_dataset(save_path: str) -> dict[str, Any]:
    """Return CartPole's config, of 3 steps an episode, with a recorder."""
    env: dict[str, Any] = load_json(CART_POLE_ENV) | {"max_episode_steps": 3}
    params = {"save_path": save_path, "use_videos": False}
    env["env"]["dataset"] = {"lerobot": {"func": "LeRobotRecorder", "mode": "save", "params": params}}
    return env


@pytest.mark.parametrize("allowed", [False, True])
def test_config_writes_outside_its_run_only_where_allowed(
    tmp_path: Path, allowed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    env = with_dataset(str(tmp_path / "data/set"))
    flags = ["--allow-write", str(tmp_path / "data")] if allowed else []
    assert run_main(*flags, "trainer.enable_eval=false", trainer__gym_config=env) == 0
    place = tmp_path / "data/set" if allowed else only_run() / "set"
    assert (place / "meta/info.json").is_file()
    assert (tmp_path / "data").exists() is allowed
    assert ("leads out of the run's folder" in capsys.readouterr().err) is not allowed


def test_training_and_evaluation_record_their_datasets_apart() -> None:
    pytest.importorskip("pyarrow")
    assert run_main(trainer__gym_config=with_dataset("set")) == 0
    assert sorted(path.relative_to(only_run()).as_posix() for path in only_run().glob("**/info.json")) == [
        "eval/set/meta/info.json",
        "set/meta/info.json",
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, "trainer.exp_name: only letters, digits, ") for name in ("../up", "/tmp/up", "a/b", "a\0b")),
        ("x" * 101, "trainer.exp_name: String should "),
        # Of three bytes each in UTF-8: 240.
        ("名" * 80, "trainer.exp_name: too long for the name of a file: 240 bytes in UTF-8, at most 190"),
    ],
)
def test_name_of_an_experiment_is_no_path(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(trainer__exp_name=name) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")
    assert os.listdir() == ["train_config.json"]


@pytest.mark.skipif(os.environ.get("MUJOCO_GL") == "disable", reason="needs OpenGL without a screen")
def test_camera_among_the_training_events_records_the_training() -> None:
    camera = {
        "func": "record_camera_data",
        "mode": "interval",
        "interval_step": 2,
        "params": {"name": "watch", "resolution": [64, 48], "eye": [4.5, 0.0, 1.6], "target": [0.0, 0.0, 0.8]},
    }
    events = {"train": {"camera": camera}}
    assert run_main("trainer.enable_eval=false", "policy.normalize_obs=false", trainer__events=events) == 0
    # the first state, and 2 iterations of 4 steps with an image every second step
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(only_run() / "videos" / "watch_train.mp4"))
    assert frames == 5


# --- bad surroundings ---


def fail_saving(monkeypatch: pytest.MonkeyPatch, *calls: int) -> None:
    """Let the given saves of a checkpoint, counted from 1, fail for lack of room."""
    count, save = [0], save_checkpoint

    def save_or_fail(path: Path, content: dict[str, Any]) -> None:
        count[0] += 1
        if count[0] in calls:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        save(path, content)

    monkeypatch.setattr(files, "save_checkpoint", save_or_fail)


QUICK = ("trainer.enable_eval=false", "trainer.iterations=4", "trainer.save_freq=1 it")


def test_checkpoints_on_a_full_disk_are_warnings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_saving(monkeypatch, 2, 3)
    assert run_main(*QUICK) == 0
    folder = only_run() / "checkpoints"
    assert capsys.readouterr().err.splitlines() == [
        f"[WARNING] the checkpoint of step {step} could not be written: [Errno 28] No space left on device: "
        f"'{folder}/tiny_step_{step}.pt'. The last one that is whole: {folder}/tiny_step_8.pt"
        for step in (16, 24)
    ]
    assert sorted(path.name for path in folder.iterdir()) == ["latest.json", "tiny_step_32.pt", "tiny_step_8.pt"]


def test_unwritten_last_checkpoint_is_an_error_and_resumable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        fail_saving(patch, 4)
        assert run_main(*QUICK) == 1
    folder = only_run() / "checkpoints"
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: the training is finished, but its last checkpoint could not be written: [Errno 28] No space left on "
        f"device: '{folder}/tiny_step_32.pt'. The last one that is whole: {folder}/tiny_step_24.pt"
    )
    assert main(["--resume", "latest"]) == 0
    assert (folder / "tiny_step_32.pt").is_file()
    assert [row["step"] for row in read_metrics(only_run())] == [8, 16, 24, 32]


def test_final_files_that_cannot_be_written_are_warnings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(path: Path, *args: Any, **kwargs: Any) -> None:
        if path.name not in ("config.json", "machine.json"):  # which were written at the beginning
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_json(path, *args, **kwargs)

    monkeypatch.setattr(doors, "load_all", lambda door: {"report.html": fail} if door == doors.REPORTS else {})
    for name in ("draw_learning_curve", "write_json"):
        monkeypatch.setattr(run_folder, name, fail)
    assert run_main("trainer.enable_eval=false") == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        f"[WARNING] {name} could not be written: [Errno 28] No space left on device"
        for name in ("learning_curve.png", "summary.json", "report.html")
    ]
    assert "tiny_step_16.pt" in printed.out
    # Named is only what is there.
    assert [line.split()[-1] for line in printed.out.splitlines()[-3:]] == ["none", "none", "none"]


# --- what is printed, and where the numbers come from ---


def test_training_goes_on_where_nothing_can_be_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run_main() == 0
        full.flush()  # as the interpreter does at its end
    assert [row["step"] for row in read_metrics(only_run())] == [8, 16]
    assert (only_run() / "summary.json").exists()


def test_policy_and_pythons_own_random_numbers_follow_from_the_seed() -> None:
    drawn: list[tuple[float, list[Any]]] = []
    for seed in (1, 2, 1):
        random.seed()
        name = f"run{len(drawn)}"
        assert run_main(trainer__seed=seed, trainer__enable_eval=False, trainer__exp_name=name) == 0
        (path,) = Path("outputs").glob(f"{name}_*/checkpoints/*_16.pt")
        drawn.append((random.random(), load_checkpoint(path)["policy"]["actor.0.weight"].tolist()))
    for first, second, third in zip(*drawn, strict=True):
        assert first == third != second


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_envs": 10**9}, "num_envs: 1,000,000,000 environments take 1,000.0 GB of memory at least, and "),
        ({"num_eval_envs": 10**9}, "num_envs: 1,000,000,000 environments take 1,000.0 GB of memory at least, and "),
        # 47 bytes a step: 5 + 1 + 4 float32, 3 bool; and one slot more than there are steps
        ({"buffer_size": 10**9}, "trainer.buffer_size: the 1,000,000,000 steps of a rollout in 2 environments take "),
    ],
)
def test_sizes_beyond_the_memory_are_refused(
    changes: dict[str, int], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [f"trainer.{name}={value}" for name, value in changes.items()]
    assert run_main(*arguments, "algorithm.cfg.batch_size=8") == 2
    err = capsys.readouterr().err
    assert f"error: {message}" in err
    assert err.count("\n") == 1
    assert not Path("outputs").exists()


# --- several processes ---


@pytest.mark.parametrize("arguments", [["--processes", "3"], ["--processes", "3", "--distributed"]])
def test_processes_are_started_on_this_machine(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[int, Any]] = []

    def start(count: int, rank: Any) -> dict[str, Any]:
        started.append((count, rank.args))
        return {"run_folder": "outputs/x"}

    monkeypatch.setattr(launch, "start_local_processes", start)
    monkeypatch.setattr(train, "print_summary", lambda summary: None)
    assert run_main(*arguments, "trainer.seed=3") == 0
    assert started == [(3, ("train_config.json", True, ["trainer.seed=3"], [], None, []))]


@pytest.mark.parametrize(("rank", "options"), [(None, ["--no-distributed"]), ("1", [])])
def test_number_of_processes_is_refused_where_it_cannot_be(
    rank: str | None, options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if rank is not None:
        for name, value in {"RANK": rank, "WORLD_SIZE": "4", "LOCAL_RANK": rank, "MASTER_ADDR": "localhost"}.items():
            monkeypatch.setenv(name, value)
    assert run_main("--processes", "2", *options) == 2
    assert "--processes: starts processes: leave it out" in capsys.readouterr().err


@pytest.mark.parametrize("number", ["0", "-1"])
def test_no_processes_are_no_training(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main("--processes", number) == 2
    assert f"--processes {number}: must be at least 1" in capsys.readouterr().err


def test_overrides_in_python_may_be_numbers_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr(train, "train_from_config", lambda config, overrides: given.append(overrides))
    train.train("cart_pole", **{"trainer.num_envs": np.int64(4), "trainer.exp_name": "a"})
    assert given == [["trainer.num_envs=4", 'trainer.exp_name="a"']]


@pytest.mark.parametrize(("code", "expected"), [(2, 2), (1, 1), (-9, 1)])
def test_local_process_that_fails_gives_the_exit_code(
    code: int, expected: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: Any) -> None:
        raise FailedProcessError("rank 1 has failed", code)

    monkeypatch.setattr(launch, "start_local_processes", fail)
    assert run_main("--processes", "2") == expected
    assert capsys.readouterr().err == "error: rank 1 has failed\n"
