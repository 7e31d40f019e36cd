"""Legend: N = 2 environments, T = 3 steps."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.nan_guard.nonfinite import FieldStats, describe_batch, describe_rollout, find_origin

NAN, INF = float("nan"), float("inf")


def make_rollout() -> TensorDict:
    entries = TensorDict({"cam/depth": torch.zeros(2, 4), "cam/color": torch.zeros(2, 4, dtype=torch.uint8)}, [2])
    return allocate_rollout(2, 3, 2, 1, "cpu", entries=entries)


def test_range_is_of_the_finite_numbers_and_the_others_are_counted() -> None:
    stats = FieldStats.of("reward", torch.tensor([[NAN, -3.0], [INF, 2.0]]))
    assert (stats.lowest, stats.highest, stats.bad, stats.count) == (-3.0, 2.0, 2, 4)
    assert not stats.is_extreme


def test_field_without_a_finite_number_has_no_range() -> None:
    stats = FieldStats.of("reward", torch.tensor([NAN]))
    assert stats.lowest != stats.lowest
    assert (stats.bad, stats.count, stats.is_extreme) == (1, 1, False)


@pytest.mark.parametrize("value", [2e6, -2e6])
def test_number_far_from_0_is_extreme(value: float) -> None:
    assert FieldStats.of("reward", torch.tensor([0.0, value])).is_extreme


def test_finite_rollout_has_no_origin_and_padding_is_passed_over() -> None:
    rollout = make_rollout()
    for name in ("reward", "action", "sample_log_prob", "final_value"):
        rollout[name][:, 3] = NAN
    assert find_origin(rollout) is None
    assert all(stats.bad == 0 for stats in describe_rollout(rollout))


def test_origin_is_the_earliest_step() -> None:
    rollout = make_rollout()
    rollout["obs"][0, 2, 1] = NAN
    rollout["reward"][1, 1] = INF
    origin = find_origin(rollout)
    assert origin is not None
    assert (origin.field, origin.env, origin.step, origin.column, origin.envs) == ("reward", 1, 1, None, [1])


def test_of_one_step_the_observation_comes_before_what_follows_from_it() -> None:
    rollout = make_rollout()
    for name in ("value", "action", "sample_log_prob", "reward", "obs"):
        rollout[name][:, 1] = NAN
    origin = find_origin(rollout)
    assert origin is not None
    assert (origin.field, origin.column, origin.envs) == ("obs", 0, [0, 1])


def test_bootstrap_slot_and_nested_entries_are_looked_at() -> None:
    rollout = make_rollout()
    rollout["entries"]["cam/depth"][1, 3, 2] = NAN
    origin = find_origin(rollout)
    assert origin is not None
    assert (origin.field, origin.env, origin.step, origin.column) == ("entries/cam/depth", 1, 3, 2)


def test_batch_is_described_without_what_cannot_be_not_finite() -> None:
    batch = TensorDict({"obs": torch.tensor([[1.0], [NAN]]), "done": torch.zeros(2, dtype=torch.bool)}, [2])
    assert describe_batch(batch) == [FieldStats("obs", 1.0, 1.0, 1, 2)]
