"""Trainings with a replay buffer that are interrupted anywhere equal those that were not.

2 environments, rollouts of 4 steps, 10 iterations. Of each environment the buffer's window has 12 slots, and its ring
12 + 2 * 4 + 2 = 22. Episodes of environment 0 are truncated after 1, 3, 2, 1, 3, 2, ... steps: a rollout takes 4 + 2
slots, and all of them wrap around the ring twice. Those of environment 1 terminate: 4 slots.
"""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from embodichain.agents.rl.buffer import ReplayBuffer
from embodichain.agents.rl.checkpoint import files as checkpoint_files
from embodichain.agents.rl.checkpoint.files import load_checkpoint
from embodichain.agents.rl.distributed import ProcessGroup
from embodichain.agents.rl.metrics.sinks import RunLog
from embodichain.agents.rl.trainer.saving import Saver
from embodichain.agents.rl.trainer.trainer import Trainer
from embodichain.utils import ConfigError, logger, read_bytes
from embodichain.utils.state import freeze, seed_generators
from tests.agents.rl.fakes import OffPolicyCfg, OffPolicyFake, ScriptedEnv, assert_same, linear_policy, tiny_trainer

STEPS = 80


class ResumableEnv(ScriptedEnv):
    """Saves where it is."""

    def __init__(self) -> None:
        super().__init__(2, lambda e: e % 3 + 1)

    def state_dict(self) -> dict[str, Any]:
        return {"episode": self.episode, "t": self.t}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.episode, self.t = state["episode"], state["t"]


class Killed(BaseException):
    """Ends a training at once."""


def make(folder: Path, **changes: Any) -> Trainer:
    algorithm = OffPolicyFake(OffPolicyCfg(replay_capacity=24), linear_policy())
    seed_generators(3)
    arguments = tiny_trainer(folder, **{"save_freq": "2 it"} | changes)
    return Trainer(algorithm.policy, ResumableEnv(), algorithm, **arguments, log=RunLog())


def replay_of(trainer: Trainer) -> ReplayBuffer:
    return cast(OffPolicyFake, trainer.algorithm).replay


def slots_of(buffer: ReplayBuffer) -> dict[str, Tensor]:
    return buffer.read(*buffer.span(buffer.state_dict()))


def end_of(trainer: Trainer) -> dict[str, Any]:
    """Return all that a training ends with."""
    state: dict[str, Any] = freeze(trainer.state_dict())
    return {k: v for k, v in state.items() if k != "train_seconds"} | {"slots": slots_of(replay_of(trainer))}


def resume(folder: Path) -> dict[str, Any]:
    """Continue from the latest checkpoint in a folder, or begin anew if there is none; return its end."""
    trainer = make(folder)
    if any(folder.glob("*.pt")):
        path, content = trainer.checkpoints.load_latest()
        trainer.load_state_dict(content)
        trainer.checkpoints.take_up(path, content)
    trainer.train(STEPS)
    return end_of(trainer)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    trainer = make(tmp_path_factory.mktemp("whole"))
    trainer.train(STEPS)
    assert trainer.state_dict()["stores"]["replay"]["head"].tolist() == [60, 40]
    return end_of(trainer)


@pytest.mark.e2e
@pytest.mark.parametrize("step", [0, 3, 13, 26, 39])
def test_training_resumed_after_a_failed_step_equals_the_whole(
    step: int, tmp_path: Path, whole: dict[str, Any]
) -> None:
    trainer = make(tmp_path)
    cast(ResumableEnv, trainer.env).fails_after = step
    with pytest.raises(RuntimeError, match="fell off"):
        trainer.train(STEPS)
    trainer.saver.rescue(is_together=True)
    assert_same(resume(tmp_path), whole)


@pytest.mark.e2e
@pytest.mark.parametrize(("place", "count"), [("_write", 6), ("_clear", 9), ("_advance", 7), ("sample", 15)])
def test_training_resumed_after_a_failed_update_equals_the_whole(
    place: str, count: int, tmp_path: Path, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, original = iter(range(1, 1000)), getattr(ReplayBuffer, place)

    def failing(self: ReplayBuffer, *args: Any) -> Any:
        done = original(self, *args)
        if next(calls) == count:
            raise RuntimeError("half-way")
        return done

    trainer = make(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(ReplayBuffer, place, failing)
        with pytest.raises(RuntimeError, match="half-way"):
            trainer.train(STEPS)
    trainer.saver.rescue(is_together=True)
    assert_same(resume(tmp_path), whole)


def failing_replace(count: int, error: BaseException, is_after: bool = False) -> Callable[[Any, Any], None]:
    """Return ``os.replace``, by which each file gets its name, that raises at a call, before or after its work."""
    calls, replace = iter(range(1, 1000)), os.replace

    def replacing(source: Any, target: Any) -> None:
        is_due = next(calls) == count
        if is_due and not is_after:
            raise error
        replace(source, target)
        if is_due:
            raise error

    return replacing


# A save has three files: a segment, the checkpoint and latest.json; there are five saves.
@pytest.mark.e2e
@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 15])
def test_training_killed_in_a_save_and_resumed_equals_the_whole(
    count: int, is_after: bool, tmp_path: Path, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make(tmp_path, keep_last=1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", failing_replace(count, Killed(), is_after))
        with pytest.raises(Killed):
            trainer.train(STEPS)
    assert_same(resume(tmp_path), whole)


@pytest.mark.e2e
@pytest.mark.parametrize("count", [1, 5])
def test_next_save_writes_what_a_failed_one_lacks(
    count: int, tmp_path: Path, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make(tmp_path)
    monkeypatch.setattr(os, "replace", failing_replace(count, OSError(28, "No space left on device")))
    trainer.train(STEPS)
    assert_same(end_of(trainer), whole)
    assert "No space left" in trainer.saver.problem
    again = make(tmp_path)
    again.load_state_dict(load_checkpoint(tmp_path / "tiny_step_80.pt"))
    assert_same(end_of(again), whole)


class FailingPeer(ProcessGroup):
    """Rank 0 of two, of which the other one's disk is full."""

    world_size = 2

    def gather_data(self, data: Any, only_to_main: bool = False) -> list[Any]:
        return [data, "No space left on device"]


def test_save_fails_for_all_ranks_if_one_cannot_write_segments(tmp_path: Path) -> None:
    trainer = make(tmp_path)
    trainer.saver = Saver(trainer.checkpoints, FailingPeer(), trainer.algorithm.stores)
    with pytest.raises(OSError, match="No space left on device"):
        trainer.saver.save(freeze(trainer.state_dict()))
    assert not list(tmp_path.glob("*.pt"))


def test_failed_checkpoint_of_rank_0_is_not_saved_for_the_others(tmp_path: Path) -> None:
    class Peer(ProcessGroup):
        """Rank 1 of two; rank 0's disk was full when it wrote the checkpoint."""

        world_size, is_main = 2, False

        def gather_data(self, data: Any, only_to_main: bool = False) -> list[Any]:
            return ["No space left on device", data] if data == "" else [data, data]

    trainer = make(tmp_path)
    saver = Saver(trainer.checkpoints, Peer(), dict)
    assert saver.try_to_save(freeze(trainer.state_dict()) | {"iteration": 3}) is None
    assert (saver.last, saver.saved_iteration) == (None, 0)  # a rescue tries again, on all ranks


def test_resume_on_other_ranks_draws_other_numbers_than_the_beginning(tmp_path: Path) -> None:
    make(tmp_path).train(16)
    content = load_checkpoint(tmp_path / "tiny_step_16.pt") | {"world_size": 2}

    def begin() -> list[float]:
        seed_generators(3)
        return [float(torch.rand(())), np.random.rand(), random.random()]  # noqa: NPY002

    first = begin()
    seed_generators(3)
    make(tmp_path).load_state_dict(content)
    assert not {float(torch.rand(())), np.random.rand(), random.random()} & {*first}  # noqa: NPY002


# --- what is on the disk ---


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "replay").iterdir())


def test_each_save_writes_what_is_new_alone(tmp_path: Path) -> None:
    trainer = make(tmp_path, save_freq="1 it")
    trainer.train(STEPS)
    sizes = []
    for step in range(8, 81, 8):
        entry = load_checkpoint(tmp_path / f"tiny_step_{step}.pt")["stores"]["replay"]
        sizes.append([segment["slots"] for segment in entry["segments"]])
    # A rollout's 6 + 4 slots, and the 2 heads, which come again. The window of environment 1 is 3 rollouts long.
    assert sizes == [[12] * min(number, 3) for number in range(1, 11)]
    assert len(files(tmp_path)) == 10


def test_slots_are_written_in_pieces_of_a_bounded_size(
    tmp_path: Path, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slot has obs of 8 bytes, action and reward of 4 each and 2 flags: 3 slots of both environments are 108 bytes.
    monkeypatch.setattr(checkpoint_files, "SEGMENT_BYTES", 110)
    trainer = make(tmp_path, save_freq="5 it")
    trainer.train(STEPS)
    entry = load_checkpoint(tmp_path / "tiny_step_80.pt")["stores"]["replay"]
    # The window of 12 slots and the head: slots 0 to 3, 3 to 6, 6 to 9 and 9 to 12 of each environment.
    assert [segment["slots"] for segment in entry["segments"]] == [8, 8, 8, 8]
    again = make(tmp_path)
    again.load_state_dict(load_checkpoint(tmp_path / "tiny_step_80.pt"))
    assert_same(end_of(again), whole)


def named(folder: Path) -> set[str]:
    """Return the segments that the checkpoints of a folder name."""
    entries = [load_checkpoint(path)["stores"]["replay"]["segments"] for path in folder.glob("*.pt")]
    return {segment["file"] for entry in entries for segment in entry}


def test_segments_that_no_checkpoint_names_are_deleted(tmp_path: Path) -> None:
    trainer = make(tmp_path, save_freq="1 it", keep_last=2)
    trainer.train(56)
    assert len(list(tmp_path.glob("*.pt"))) == 2
    assert set(files(tmp_path)) == named(tmp_path)
    # Also by a later process, of which the checkpoints are not all; and what a killed one has left.
    (tmp_path / "replay/replay_rank_0_to_9_0000.pt").write_bytes(b"?")
    (tmp_path / "tiny_step_8.pt").write_bytes(b"damaged")
    resume(tmp_path)
    (tmp_path / "tiny_step_8.pt").unlink()
    assert set(files(tmp_path)) == named(tmp_path)


def test_checkpoint_that_cannot_be_read_for_now_keeps_its_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, save_freq="1 it", keep_last=2).train(56)
    needed = named(tmp_path)

    def failing(path: str | Path) -> bytes:
        if "step_48" in str(path):
            raise OSError(5, "Input/output error")
        return read_bytes(path)

    monkeypatch.setattr(checkpoint_files, "read_bytes", failing)
    resume(tmp_path)
    assert needed <= set(files(tmp_path))


def test_segments_of_a_kept_best_checkpoint_stay(tmp_path: Path) -> None:
    trainer = make(tmp_path, save_freq="1 it", keep_last=1)
    trainer.train(8)
    trainer.saver.is_best({"eval/success_rate": 1.0, "eval/avg_reward": 1.0}, 8)
    trainer.train(STEPS)
    assert sorted(path.name for path in tmp_path.glob("*.pt")) == ["tiny_step_8.pt", "tiny_step_80.pt"]
    assert set(files(tmp_path)) == named(tmp_path)
    again = make(tmp_path)
    again.load_state_dict(load_checkpoint(tmp_path / "tiny_step_8.pt"))
    assert replay_of(again).num_steps == 8


def test_removed_segments_are_written_again_with_a_warning(
    tmp_path: Path, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(logger, "log_warning", warnings.append)
    trainer = make(tmp_path)
    trainer.train(40)
    shutil.rmtree(tmp_path / "replay")
    trainer.train(STEPS)
    (warning,) = warnings
    assert warning.startswith(f"{tmp_path}/replay/replay_rank_0_to_")
    assert warning.endswith(": was removed; the replay buffer is written again")
    again = make(tmp_path)
    again.load_state_dict(load_checkpoint(tmp_path / "tiny_step_80.pt"))
    assert_same(end_of(again), whole)


def test_checkpoint_of_another_folder_is_continued_here(tmp_path: Path, whole: dict[str, Any]) -> None:
    make(tmp_path / "first").train(48)
    second = make(tmp_path / "second")
    second.load_state_dict(load_checkpoint(tmp_path / "first/tiny_step_48.pt"), tmp_path / "first")
    second.train(STEPS)
    assert_same(end_of(second), whole)
    shutil.rmtree(tmp_path / "first")
    again = make(tmp_path / "second")
    again.load_state_dict(load_checkpoint(tmp_path / "second/tiny_step_80.pt"))
    assert_same(end_of(again), whole)


def test_later_checkpoint_than_the_resumed_one_stays_whole(tmp_path: Path, whole: dict[str, Any]) -> None:
    make(tmp_path).train(STEPS)
    again = make(tmp_path, save_freq="3 it")  # 24, 48, 72, 80
    again.load_state_dict(load_checkpoint(tmp_path / "tiny_step_16.pt"))
    again.train(24)
    later = make(tmp_path)
    later.load_state_dict(load_checkpoint(tmp_path / "tiny_step_80.pt"))
    assert_same(end_of(later), whole)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "another": lambda path: shutil.copy(next(other for other in path.parent.iterdir() if other != path), path),
    "missing": lambda path: path.unlink(),
}


@pytest.mark.e2e
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_segment_is_one_line_that_names_it(damage: str, tmp_path: Path) -> None:
    make(tmp_path).train(STEPS)
    content = load_checkpoint(tmp_path / "tiny_step_80.pt")
    path = tmp_path / "replay" / content["stores"]["replay"]["segments"][0]["file"]
    DAMAGES[damage](path)
    with pytest.raises(ConfigError) as error:
        make(tmp_path).load_state_dict(content)
    message = str(error.value)
    assert message.startswith(f"{path}: {'cannot be read' if damage == 'missing' else 'damaged'}")
    assert message.endswith(": the replay buffer of the checkpoint cannot be restored")
    assert "\n" not in message
