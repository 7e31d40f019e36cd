"""Legend: N envs, T rollout steps, K members of a group."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from embodichain.agents.rl.algo.advantages import discounted_returns
from embodichain.agents.rl.algo.grpo import alive_mask, group_advantages


def flags(*rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.bool)


# --- returns ---


def test_returns_are_discounted_sums_to_the_rollout_s_end() -> None:
    # R_2 = 4; R_1 = 2 + 4/2 = 4; R_0 = 1 + 4/2 = 3
    returns = discounted_returns(torch.tensor([[1.0, 2.0, 4.0]]), flags([0, 0, 0]), gamma=0.5)
    assert returns.tolist() == [[3, 4, 4]]


def test_returns_are_cut_where_an_episode_ends() -> None:
    # env 0: R_0 = 1 + 2/2, its episode ends at step 1; env 1: every step is an episode; env 2: the last step ends one
    reward = torch.tensor([[1.0, 2.0, 4.0]]).expand(3, 3)
    done = flags([0, 1, 0], [1, 1, 1], [0, 0, 1])
    assert discounted_returns(reward, done, gamma=0.5).tolist() == [[2, 2, 4], [1, 2, 4], [3, 4, 4]]


def test_returns_of_a_time_major_rollout_are_the_same() -> None:
    torch.manual_seed(0)
    reward, done = torch.randn(5, 7), torch.rand(5, 7) < 0.2
    strided = reward.t().contiguous().t()
    assert torch.equal(discounted_returns(reward, done, 0.9), discounted_returns(strided, done, 0.9))


# --- masks ---


def test_steps_after_the_first_end_are_masked_and_the_end_itself_is_not() -> None:
    done = flags([0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1])
    assert alive_mask(done).int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 1]]


# --- advantages ---


def advantages(returns: list[list[float]], valid: list[list[int]] | None = None, K: int = 2) -> list[Any]:
    table = torch.tensor(returns)
    mask = torch.ones_like(table, dtype=torch.bool) if valid is None else flags(*valid)
    return [pytest.approx(row, abs=1e-5) for row in group_advantages(table, mask, K, eps=1e-8).tolist()]


def test_advantage_is_the_distance_from_the_group_s_mean_in_unbiased_stds() -> None:
    # step 0: mean 2, std sqrt((1 + 0 + 1) / 2) = 1; step 1: mean 4, std sqrt((16 + 4 + 4) / 2) = sqrt(12)
    returns = [[1.0, 0.0], [2.0, 6.0], [3.0, 6.0]]
    s = math.sqrt(12)
    assert advantages(returns, K=3) == [[-1, -4 / s], [0, 2 / s], [1, 2 / s]]


def test_groups_are_consecutive_envs_and_do_not_mix() -> None:
    # pairs: std of (0, 2) is sqrt(2), of (100, 100) it is 0
    r = 1 / math.sqrt(2)
    assert advantages([[0.0], [2.0], [100.0], [100.0]]) == [[-r], [r], [0], [0]]


def test_eps_is_added_to_the_std() -> None:
    out = group_advantages(torch.tensor([[0.0], [2.0]]), flags([1], [1]), 2, eps=1.0)
    assert out.tolist() == [[pytest.approx(-1 / (1 + math.sqrt(2)))], [pytest.approx(1 / (1 + math.sqrt(2)))]]


def test_members_that_are_done_count_neither_in_the_mean_nor_in_the_std() -> None:
    # step 0: all three; step 1: 1 and 3 only: mean 2, std sqrt(2)
    returns = [[1.0, 1.0], [2.0, 3.0], [3.0, 999.0]]
    r = 1 / math.sqrt(2)
    assert advantages(returns, [[1, 1], [1, 1], [1, 0]], K=3) == [[-1, -r], [0, r], [1, 0]]


def test_last_member_alive_has_nobody_to_be_compared_with() -> None:
    assert advantages([[5.0], [1.0]], [[1], [0]]) == [[0], [0]]
    assert advantages([[5.0], [1.0]], [[0], [0]]) == [[0], [0]]


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_group_that_did_equally_well_has_no_advantages_at_any_size_of_return(size: float) -> None:
    # 0.1 has no exact float: the mean of seven differs from it by rounding, which eps alone would blow up
    returns = torch.full((7, 3), 0.1 * size)
    out = group_advantages(returns, torch.ones(7, 3, dtype=torch.bool), 7, eps=1e-8)
    assert not out.any()
    returns[0] *= 1.001  # and a small true difference counts as any other
    out = group_advantages(returns, torch.ones(7, 3, dtype=torch.bool), 7, eps=0.0)
    torch.testing.assert_close(out[0], torch.full((3,), 6 / math.sqrt(7)), atol=1e-2, rtol=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_return_that_is_not_finite_makes_its_own_group_so_and_no_other(bad: float) -> None:
    returns = torch.tensor([[bad, 1.0], [2.0, 2.0], [bad, 4.0], [1.0, 5.0], [3.0, 6.0], [9.0, 7.0]])  # groups of 3
    valid = torch.ones_like(returns, dtype=torch.bool)
    valid[2] = False  # not alive: 0, whatever the others do
    advantages = group_advantages(returns, valid, 3, 1e-8)
    assert advantages.isfinite().tolist() == [[False, True], [False, True], [True, True], *[[True, True]] * 3]
    assert advantages[2].tolist() == [0, 0]
