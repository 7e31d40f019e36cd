"""Whole runs of CartPole in two processes, each with 2 environments, 4 steps an iteration: 16 steps an iteration."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.distributed.stop import InterruptedTraining
from embodichain.agents.rl.train import train_from_config
from embodichain.agents.rl.trainer.trainer import Trainer
from embodichain.utils import ConfigError
from tests.agents.rl.distributed.processes import run_ranks
from tests.agents.rl.fakes import read_metrics, tiny_config, write_config
from tests.agents.rl.test_resume import rows

pytestmark = pytest.mark.e2e


def config(folder: Path, **changes: Any) -> str:
    return write_config(folder, tiny_config(**changes))


def train(rank: int, folder: Path, path: str | None, **arguments: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    return train_from_config(path, True, **arguments)


def train_and_resume(rank: int, folder: Path) -> list[dict[str, Any]]:
    """Two iterations at once; and one, then the second in a training that goes on with it. Returns their summaries."""
    path = config(folder, trainer__save_freq="1 it") if rank == 0 else str(folder / "train_config.json")
    whole = train(rank, folder / "whole", path)
    half = train(rank, folder / "half", path, overrides=["trainer.iterations=1"])
    run = half["run_folder"]
    return [whole, train(rank, folder / "half", None, overrides=["trainer.iterations=2"], resume=run)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, list[Any]]:
    """The folders of the run at once and of the one that was resumed, and what each rank returned."""
    folder = tmp_path_factory.mktemp("runs")
    config(folder, trainer__save_freq="1 it")
    results = run_ranks(2, train_and_resume, folder, joined=False)
    whole, half = results[0]
    return folder / "whole" / whole["run_folder"], folder / "half" / half["run_folder"], results


def test_rank_0_alone_leaves_the_run_and_all_return_its_summary(runs: tuple[Path, Path, list[Any]]) -> None:
    whole, _, results = runs
    assert results[0] == results[1]
    summary = results[0][0]
    assert summary["env_steps"] == 2 * 4 * 2 * 2  # iterations x steps x environments x processes
    assert summary["episodes"] == 3
    assert [row["step"] for row in read_metrics(whole)] == [16, 32]
    assert os.listdir(whole.parent) == [whole.name]
    assert sorted(path.name for path in (whole / "checkpoints").glob("*.pt")) == ["tiny_step_16.pt", "tiny_step_32.pt"]


def test_checkpoint_holds_the_environments_of_all_ranks(runs: tuple[Path, Path, list[Any]]) -> None:
    content = load_checkpoint(runs[0] / "checkpoints" / "tiny_step_32.pt")
    # 17 of the first steps in 4 environments, and two rollouts of 16.
    assert content["policy"]["normalizer.count"] == 17 * 4 + 32
    assert content["world_size"] == 2
    (other,) = content["other_ranks"]
    ids = [part["env"]["random"]["stream_ids"].tolist() for part in (content, other)]
    assert ids == [[0, 1], [2, 3]]
    assert not torch.equal(content["generators"]["torch"], other["generators"]["torch"])  # seed + rank


def test_resumed_run_is_the_same_bit_for_bit(runs: tuple[Path, Path, list[Any]]) -> None:
    whole, half, _ = runs
    first, second = (load_checkpoint(run / "checkpoints" / "tiny_step_32.pt") for run in (whole, half))
    for part in ("policy", "collector"):
        assert str(first[part]) == str(second[part])
    assert all(torch.equal(first["policy"][name], second["policy"][name]) for name in first["policy"])
    assert str(first["other_ranks"][0]["env"]["sim"]) == str(second["other_ranks"][0]["env"]["sim"])
    assert rows(whole) == rows(half)


def test_another_number_of_processes_begins_new_episodes(
    runs: tuple[Path, Path, list[Any]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = runs[0]
    monkeypatch.chdir(whole.parents[1])
    summary = train_from_config(
        None, False, ["trainer.iterations=3"], resume=str(whole / "checkpoints/tiny_step_32.pt")
    )
    assert summary["env_steps"] == 32 + 8
    text = capsys.readouterr().err
    assert text.count("[WARNING]") == 1
    assert "the run had 2 processes and now has 1: policy, optimiser, normaliser and counters continue" in text
    content = load_checkpoint(summary["checkpoint"])
    assert content["policy"]["normalizer.count"] == 17 * 4 + 32 + 8
    assert content["world_size"] == 1


def evaluate(rank: int, folder: Path) -> list[float]:
    """Return the results of an evaluation of 5 episodes, by a policy that is the same on all."""
    summary = train(rank, folder, str(folder / "train_config.json"), overrides=["algorithm.cfg.learning_rate=1e-30"])
    return results_of(folder / summary["run_folder"])


def results_of(run: Path) -> list[float]:
    """Return the last evaluation's success, return, length and metric."""
    row = read_metrics(run)[-1]
    return [row[f"eval/{name}"] for name in ("success_rate", "avg_reward", "avg_length", "metrics/pole_angle")]


def test_split_evaluation_is_that_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(
        tmp_path,
        trainer__num_eval_episodes=5,
        trainer__eval_freq="9 it",
        policy__normalize_obs=False,  # its statistics would differ
    )
    two = run_ranks(2, evaluate, tmp_path, joined=False)
    monkeypatch.chdir(tmp_path)
    changes = ["algorithm.cfg.learning_rate=1e-30", "trainer.exp_name=alone"]
    one = train_from_config("train_config.json", False, changes)
    assert two == [pytest.approx(results_of(tmp_path / one["run_folder"]), rel=1e-5)] * 2


def interrupt(rank: int, folder: Path) -> tuple[int, int]:
    """Let a signal reach rank 1 alone, in the second iteration; return the exit code and the finished iterations."""
    trainers: list[Trainer] = []
    collect = Trainer._collect

    def signalled(trainer: Trainer, num_steps: int) -> Any:
        trainers.append(trainer)
        if rank == 1 and trainer._iteration == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return collect(trainer, num_steps)

    Trainer._collect = signalled  # type: ignore[method-assign, assignment]
    try:
        train(rank, folder, str(folder / "train_config.json"))
    except InterruptedTraining as stop:
        return stop.exit_code, trainers[0].saver.saved_iteration
    return 0, 0


def test_signal_to_one_rank_stops_all_after_the_same_iteration(tmp_path: Path) -> None:
    config(tmp_path, trainer__iterations=5)
    assert run_ranks(2, interrupt, tmp_path, joined=False) == [(143, 1), (143, 1)]
    (path,) = tmp_path.glob("outputs/*/checkpoints/*.pt")
    content = load_checkpoint(path)
    assert (content["global_step"], len(content["other_ranks"])) == (16, 1)


def forget(rank: int, folder: Path) -> str:
    os.chdir(folder)
    try:
        train_from_config("train_config.json")
    except ConfigError as error:
        return str(error)
    return ""


def test_processes_that_would_each_train_alone_are_refused(tmp_path: Path) -> None:
    config(tmp_path)
    for message in run_ranks(2, forget, tmp_path, joined=False):
        assert message.startswith("WORLD_SIZE: this is one of 2 processes, and trainer.distributed is false")
    assert not (tmp_path / "outputs").exists()
