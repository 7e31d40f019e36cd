"""Runs that are stopped and go on: nothing about them may differ from runs that were not."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from embodichain.agents.rl.train import main
from embodichain.agents.rl.utils.checkpoint import load_checkpoint
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils.utility import load_json
from tests.agents.rl.utils.fakes import CART_POLE_ENV, PUSH_CUBE_ENV, tiny_config, write_config

TIMES = ("wall_time", "charts/SPS", "time/")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def push_cube(threads: int) -> dict[str, Any]:
    """PPO with a normaliser, a schedule of the learning rate, randomised resets and an event at an interval."""
    env = load_json(PUSH_CUBE_ENV) | {"max_episode_steps": 6}
    env["env"]["sim_cfg"] = {"num_threads": threads}
    shake = {
        "func": "randomize_robot_qpos",
        "mode": "interval",
        "interval_step": 3,
        "params": {"qpos_range": [[-0.1], [0.1]]},
    }
    return tiny_config(
        trainer__gym_config=env,
        trainer__iterations=4,
        trainer__eval_freq="3 it",
        trainer__events={"train": {"shake": shake}},
        algorithm__cfg={"n_epochs": 2, "batch_size": 4, "lr_schedule": "linear"},
    )


def cart_pole(threads: int) -> dict[str, Any]:
    """GRPO with a reference policy, on episodes that go on from one rollout to the next."""
    env = load_json(CART_POLE_ENV) | {"max_episode_steps": 7}
    env["env"]["sim_cfg"] = {"num_threads": threads}
    push = {
        "func": "randomize_robot_qpos",
        "mode": "interval",
        "interval_step": 3,
        "params": {"qpos_range": [[-0.1], [0.1]]},
    }
    config = tiny_config(
        trainer__gym_config=env,
        trainer__num_envs=4,
        trainer__iterations=4,
        trainer__events={"train": {"push": push}},
        algorithm={
            "name": "grpo",
            "cfg": {
                "n_epochs": 2,
                "batch_size": 8,
                "group_size": 2,
                "kl_coef": 0.1,
                "reset_every_rollout": False,
                "truncate_at_first_done": False,
            },
        },
    )
    config["policy"] = {key: value for key, value in config["policy"].items() if key != "critic"} | {
        "name": "actor_only"
    }
    return config


def only_run(folder: Path = Path()) -> Path:
    (run,) = (folder / "outputs").iterdir()
    return run


def rows(run: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in line.items() if not name.startswith(TIMES)} for line in lines]


def final(run: Path) -> dict[str, Any]:
    return load_checkpoint(max((run / "checkpoints").glob("*.pt"), key=lambda path: int(path.stem.rpartition("_")[2])))


def assert_same(ours: Any, theirs: Any, place: str = "") -> None:
    assert type(ours) is type(theirs), place
    if isinstance(ours, torch.Tensor):
        # bits, so that not-a-number equals itself
        assert ours.dtype == theirs.dtype, place
        assert ours.contiguous().numpy().tobytes() == theirs.contiguous().numpy().tobytes(), place
    elif isinstance(ours, dict):
        assert ours.keys() == theirs.keys(), place
        for key in ours:
            assert_same(ours[key], theirs[key], f"{place}.{key}")
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs), place
        for i, pair in enumerate(zip(ours, theirs, strict=True)):
            assert_same(*pair, f"{place}[{i}]")
    else:
        assert ours == theirs or (ours != ours and theirs != theirs), place


def assert_same_runs(ours: Path, theirs: Path) -> None:
    assert rows(ours) == rows(theirs)
    left_out = ("train_seconds", "config")
    a, b = ({k: v for k, v in final(run).items() if k not in left_out} for run in (ours, theirs))
    assert_same(a, b)


class Interrupt:
    """Sends this process a signal in the given step of the environments, counted from now on; evaluations count too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int, number: signal.Signals = signal.SIGTERM) -> None:
        self.count = 0
        original = EmbodiedEnv.step

        def counting(env: EmbodiedEnv, action: Any) -> Any:
            self.count += 1
            if self.count == step:
                os.kill(os.getpid(), number)
            return original(env, action)

        monkeypatch.setattr(EmbodiedEnv, "step", counting)


# 16 steps of the warm-up, 4 an iteration: the 26th is in the third iteration, before the first evaluation of PushCube.
@pytest.mark.parametrize(("make", "threads"), [(push_cube, 1), (push_cube, 2), (cart_pole, 1), (cart_pole, 2)])
@pytest.mark.parametrize("is_new_process", [False])
def test_run_that_was_stopped_and_resumed_equals_one_that_was_not(
    make: Any, threads: int, is_new_process: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = write_config(Path(), make(threads))
    for folder in ("whole", "parts"):
        Path(folder).mkdir()
    with monkeypatch.context() as patch:
        patch.chdir("whole")
        assert main(["--config", f"../{Path(config).name}"]) == 0
    monkeypatch.chdir("parts")
    with monkeypatch.context() as patch:
        Interrupt(patch, 26 if make is push_cube else 40)
        assert main(["--config", f"../{Path(config).name}"]) == 143
    run = only_run()
    assert len(rows(run)) in (1, 2, 3)
    np.random.seed(7)  # what the process drew in the meantime is of no account  # noqa: NPY002
    torch.manual_seed(7)
    assert main(["--resume", str(run)]) == 0
    assert_same_runs(run, only_run(Path("../whole")))
