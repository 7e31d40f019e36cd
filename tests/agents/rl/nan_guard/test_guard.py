"""What the guards do about an iteration; whole trainings are in tests/agents/rl/test_guards.py."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo import gradient_step
from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.nan_guard.guard import Guards, NonFiniteError
from tests.agents.rl.fakes import IdleAlgorithm, linear_policy

NAN = float("nan")


class Watched:
    """Guards of an algorithm whose steps are made here."""

    def __init__(self, folder: Path, limit: int = 3, algorithm: type[IdleAlgorithm] = IdleAlgorithm) -> None:
        self.policy = linear_policy()
        self.algorithm = algorithm(self.policy)
        self.algorithm.optimizer = torch.optim.SGD(self.policy.parameters(), lr=0.1)  # type: ignore[attr-defined]
        self.guards = Guards(folder / "bundles", self.policy, self.algorithm, limit, {"config": {}})
        self.folder = folder
        self.step = 0

    def iterate(self, *factors: float, rollout: TensorDict | None = None) -> dict[str, float]:
        """Make an update with a gradient step for each factor of the loss; the rollout has zeros by default."""
        rollout = allocate_rollout(2, 4, 2, 1, "cpu") if rollout is None else rollout
        self.step += 8
        self.guards.begin_update()
        before: dict[str, Any] = {"policy": self.policy.state_dict(), "algorithm": self.algorithm.state_dict()}
        for factor in factors:
            loss = factor * self.policy.log_std.sum()
            optimizer: torch.optim.Optimizer = self.algorithm.optimizer  # type: ignore[attr-defined]
            gradient_step(optimizer, self.policy.parameters(), loss, 1.0)
        return self.guards.end_iteration(rollout, before, {}, self.step)

    def bundles(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("bundles/*"))


def test_skipped_steps_are_counted_by_iteration_and_nothing_is_written_where_all_is_well(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    assert run.iterate(1.0, 1.0) == {"train/skipped_steps": 0, "charts/diverged_episodes": 0}
    assert list(tmp_path.iterdir()) == []
    assert run.iterate(1.0, NAN, 1.0, NAN)["train/skipped_steps"] == 2
    assert run.iterate(1.0)["train/skipped_steps"] == 0


def test_updates_in_a_row_are_those_without_any_step(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    for factors in ((NAN,), (NAN, NAN), (NAN, 1.0), (NAN,), (NAN,)):
        run.iterate(*factors)
    with pytest.raises(NonFiniteError, match="step 48: 3 updates in a row without a gradient step"):
        run.iterate(NAN)


def test_algorithm_that_makes_no_steps_by_gradient_step_is_not_taken_for_one_that_skips(tmp_path: Path) -> None:
    run = Watched(tmp_path, limit=1)
    assert run.iterate()["train/skipped_steps"] == 0


def test_each_time_that_steps_begin_to_be_skipped_there_is_one_warning_and_one_of_three_bundles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Watched(tmp_path)
    for _ in range(5):
        run.iterate(NAN, 1.0)
        run.iterate(NAN, 1.0)
        run.iterate(1.0)
    assert capsys.readouterr().err.count("1 of 2 gradient steps skipped") == 5
    assert run.bundles() == ["update_step_32.pt", "update_step_56.pt", "update_step_8.pt"]


def test_bundle_that_cannot_be_written_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bundles").write_text("a file in the folder's place", encoding="utf-8")
    run = Watched(tmp_path, limit=2)
    assert run.iterate(NAN)["train/skipped_steps"] == 1
    err = capsys.readouterr().err
    assert f"{tmp_path}/bundles: a bundle cannot be written: File exists" in err
    with pytest.raises(NonFiniteError, match="There is no bundle of it"):
        run.iterate(NAN)


def test_parameters_that_are_not_finite_end_the_run_at_once(tmp_path: Path) -> None:
    run = Watched(tmp_path)
    nn.init.constant_(run.policy.log_std, NAN)
    with pytest.raises(NonFiniteError, match="the update made the policy's parameters NaN or infinite"):
        run.iterate()
    assert run.bundles() == ["update_step_8.pt"]


def test_updates_in_a_row_are_also_those_in_which_one_of_several_optimizers_makes_no_step(tmp_path: Path) -> None:
    run = Watched(tmp_path, limit=2)
    second = torch.optim.SGD(run.policy.parameters(), lr=0.1)
    run.algorithm.second = second  # type: ignore[attr-defined]
    for is_last in (False, True):
        gradient_step(second, run.policy.parameters(), NAN * run.policy.log_std.sum(), 1.0)
        with pytest.raises(NonFiniteError, match="step 16: 2 updates in a row") if is_last else nullcontext():
            run.iterate(1.0)


class Storing(IdleAlgorithm):
    """Would learn from a replay buffer."""

    learns_from = "replay"


def test_rollout_that_spoils_a_replay_buffer_is_named_at_once_and_what_it_skips_later_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Watched(tmp_path, algorithm=Storing)
    bad = allocate_rollout(2, 4, 2, 1, "cpu")
    bad["reward"][1, 2] = NAN
    for rollout, factors in ((None, (1.0,)), (bad, (1.0, 1.0)), (None, (NAN, 1.0)), (None, (1.0,)), (None, (NAN, 1.0))):
        run.iterate(*factors, rollout=rollout)
    first, second = (line for line in capsys.readouterr().err.splitlines() if "WARNING" in line)
    assert (
        "step 16: 0 of 2 gradient steps skipped: loss or gradient not finite (reward not finite in environments [1]); "
        "the steps that draw it from the replay buffer will be skipped, too" in first
    )
    assert "step 24: 1 of 2 gradient steps skipped" in second  # and none for those of step 40
    assert run.bundles() == ["update_step_16.pt", "update_step_24.pt"]
