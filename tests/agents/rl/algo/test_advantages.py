"""Legend: N envs, T rollout steps. Slot T holds 99 wherever it is padding: nothing may read it."""

import math
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo import compute_gae, explained_variance, normalize_advantages
from embodichain.agents.rl.algo.advantages import discounted_returns
from embodichain.agents.rl.algo.grpo import alive_mask, group_advantages
from embodichain.agents.rl.algo.return_scale import ReturnScale


def make_rollout(
    reward: list[float],
    value: list[float],
    terminated: tuple[int, ...] = (),
    truncated: tuple[int, ...] = (),
    final_value: float | None = None,
) -> TensorDict:
    """One environment; ``terminated`` and ``truncated`` list steps; ``final_value`` is that of the truncated ones."""
    slots = len(value)
    flags = {
        name: torch.tensor([[t in steps or t == slots - 1 for t in range(slots)]])
        for name, steps in (("terminated", terminated), ("truncated", truncated))
    }
    fields = {"reward": torch.tensor([[*reward, 99.0]]), "value": torch.tensor([value]), **flags}
    if final_value is not None:
        fields["final_value"] = torch.tensor(
            [[final_value if t in truncated else 0.0 for t in range(slots - 1)] + [99]]
        )
    return TensorDict(fields, batch_size=[1, slots])


def gae(rollout: TensorDict, gamma: float = 0.5, gae_lambda: float = 0.5) -> tuple[list[float], list[float]]:
    advantages, returns = compute_gae(rollout, gamma, gae_lambda)
    assert advantages.shape == returns.shape == (1, rollout.batch_size[1] - 1)
    return advantages[0].tolist(), returns[0].tolist()


# gamma = lambda = 1/2 in all of these: A_t = delta_t + A_{t+1} / 4.


@pytest.mark.parametrize(
    ("ends", "final_value", "advantages", "returns"),
    [
        # delta_1 = 2 + 8/2 - 4 = 2;  delta_0 = 1 + 4/2 - 2 = 1;  A_1 = 2;  A_0 = 1 + 2/4 = 1.5
        ({}, 0, [1.5, 2.0], [3.5, 6.0]),
        # terminated: delta_0 = 1 + 0 - 2 = -1, and A_1 = 2 does not reach it
        ({"terminated": (0,)}, 0, [-1.0, 2.0], [1.0, 6.0]),
        # truncated: delta_0 = 1 + 16/2 - 2 = 7: neither V(s_0) = 2 nor V(s_1) = 4, the next episode's, stands in for 16
        ({"truncated": (0,)}, 16, [7.0, 2.0], [9.0, 6.0]),
        # both count as terminated
        ({"terminated": (0,), "truncated": (0,)}, 16, [-1.0, 2.0], [1.0, 6.0]),
        # truncated at the last step, the bootstrap slot is not read: delta_1 = 2 + 16/2 - 4 = 6;  A_0 = 1 + 6/4 = 2.5
        ({"truncated": (1,)}, 16, [2.5, 6.0], [4.5, 10.0]),
    ],
)
def test_gae_by_hand(ends: dict[str, Any], final_value: float, advantages: list[float], returns: list[float]) -> None:
    assert gae(make_rollout([1, 2], [2, 4, 8], **ends, final_value=final_value)) == (advantages, returns)


def test_truncation_without_final_values_is_an_error() -> None:
    with pytest.raises(ValueError, match="no 'final_value'"):
        compute_gae(make_rollout([1, 2], [2, 4, 8], truncated=(0,)), 0.5, 0.5)


def test_environments_do_not_mix() -> None:
    first = make_rollout([1, 2], [2, 4, 8], terminated=(0,), final_value=0)
    second = make_rollout([1, 2], [2, 4, 8], truncated=(0,), final_value=16)
    both = {name: torch.cat([first[name], second[name]]) for name in first.keys()}  # noqa: SIM118
    advantages, _ = compute_gae(TensorDict(both, batch_size=[2, 3]), 0.5, 0.5)
    assert advantages.tolist() == [[-1.0, 2.0], [7.0, 2.0]]


def test_value_of_an_endless_task_is_the_returns_fixed_point() -> None:
    # reward 1 for ever: V = 1 / (1 - 0.9) = 10, whatever the time limit cuts
    rollout = make_rollout([1.0] * 6, [10.0] * 7, truncated=(2, 5), final_value=10.0)
    advantages, returns = compute_gae(rollout, gamma=0.9, gae_lambda=0.95)
    torch.testing.assert_close(advantages, torch.zeros(1, 6), atol=1e-5, rtol=0)
    torch.testing.assert_close(returns, torch.full((1, 6), 10.0))


def test_normalised_advantages_have_mean_zero_and_std_one() -> None:
    # mean 3, std sqrt((4 + 0 + 4) / 3)
    expected = torch.tensor([[-2.0, 0.0, 2.0]]) / math.sqrt(8 / 3)
    torch.testing.assert_close(normalize_advantages(torch.tensor([[1.0, 3.0, 5.0]])), expected)
    assert normalize_advantages(torch.full((4,), 2.0)).tolist() == [0, 0, 0, 0]
    assert normalize_advantages(torch.tensor([[-3.0]])).tolist() == [[-3.0]]  # (-3 - mean -3) / std would be 0


def test_scale_of_returns_by_hand() -> None:
    scale = ReturnScale()
    rollout = make_rollout([1.0, 2.0], [0.0, 0.0, 0.0])
    rollout["truncated"].zero_()
    scale.update(rollout, 0.5)
    # R_1 = 2, with half the mean m behind it; R_0 = 1 + 2/2, with m/4.  m = (2 + m/2 + 2 + m/4) / 2 = 3.2
    assert scale.mean.item() == pytest.approx(3.2)
    assert scale.std.item() == pytest.approx(0.4)  # the returns are 2 + 1.6 and 2 + 0.8
    # (r - 3.2 / 2) / 0.4, and (r - 3.2) / 0.4 where nothing follows
    assert scale(torch.tensor([2.0, 2.0]), torch.tensor([0.5, 0.0])).tolist() == pytest.approx([1.0, -3.0])


def test_scaled_values_solve_the_same_equation() -> None:
    rollout = make_rollout([1.0, 2.0, 3.0], [2.0, 4.0, 8.0, 1.0], terminated=(1,), truncated=(2,), final_value=6.0)
    scale = ReturnScale()
    scale.mean.fill_(5.0)
    scale.std.fill_(2.0)
    advantages, returns = compute_gae(rollout, 0.9, 0.8)
    for name in ("value", "final_value"):
        rollout[name] = (rollout[name] - 5) / 2
    scaled_advantages, scaled_returns = compute_gae(rollout, 0.9, 0.8, scale)
    torch.testing.assert_close(scaled_advantages, advantages / 2)
    torch.testing.assert_close(scaled_returns, (returns - 5) / 2)


@pytest.mark.parametrize("rewards", [[0.0, 0.0], [-1e3, -1e3], [float("nan"), 1.0]])
def test_returns_without_a_spread_or_not_finite_have_std_one(rewards: list[float]) -> None:
    scale = ReturnScale()
    rollout = make_rollout(rewards, [0.0, 0.0, 0.0])
    rollout["truncated"].zero_()
    scale.update(rollout, 0.9)
    assert scale.std.item() == 1


def test_explained_variance() -> None:
    target = torch.tensor([[1.0, 2.0, 3.0]])
    assert explained_variance(target, target).item() == 1
    assert explained_variance(torch.full((1, 3), 5.0), target).item() == pytest.approx(0)
    assert explained_variance(-target, target).item() == pytest.approx(-3)  # Var[2 t] = 4 Var[t]
    assert explained_variance(target, torch.ones(1, 3)).item() == 0


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


# --- masks ---


def test_steps_after_the_first_end_are_masked() -> None:
    done = flags([0, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1])
    assert alive_mask(done).int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 1]]


# --- advantages ---


def advantages(returns: list[list[float]], valid: list[list[int]] | None = None, K: int = 2) -> list[Any]:
    table = torch.tensor(returns)
    mask = torch.ones_like(table, dtype=torch.bool) if valid is None else flags(*valid)
    return [pytest.approx(row, abs=1e-5) for row in group_advantages(table, mask, K, eps=1e-8).tolist()]


def test_advantage_is_in_unbiased_stds_from_the_groups_mean() -> None:
    # step 0: mean 2, std sqrt((1 + 0 + 1) / 2) = 1; step 1: mean 4, std sqrt((16 + 4 + 4) / 2) = sqrt(12)
    returns = [[1.0, 0.0], [2.0, 6.0], [3.0, 6.0]]
    s = math.sqrt(12)
    assert advantages(returns, K=3) == [[-1, -4 / s], [0, 2 / s], [1, 2 / s]]


def test_groups_are_consecutive_envs_and_do_not_mix() -> None:
    # pairs: std of (0, 2) is sqrt(2), of (100, 100) it is 0
    r = 1 / math.sqrt(2)
    assert advantages([[0.0], [2.0], [100.0], [100.0]]) == [[-r], [r], [0], [0]]


def test_done_members_count_neither_in_mean_nor_in_std() -> None:
    # step 0: all three; step 1: 1 and 3 only: mean 2, std sqrt(2)
    returns = [[1.0, 1.0], [2.0, 3.0], [3.0, 999.0]]
    r = 1 / math.sqrt(2)
    assert advantages(returns, [[1, 1], [1, 1], [1, 0]], K=3) == [[-1, -r], [0, r], [1, 0]]


def test_last_member_alive_has_nobody_to_be_compared_with() -> None:
    assert advantages([[5.0], [1.0]], [[1], [0]]) == [[0], [0]]
    assert advantages([[5.0], [1.0]], [[0], [0]]) == [[0], [0]]


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e4])
def test_equal_returns_of_any_size_have_no_advantages(size: float) -> None:
    # 0.1 has no exact float: the mean of seven differs from it by rounding, which eps alone would blow up
    returns = torch.full((7, 3), 0.1 * size)
    out = group_advantages(returns, torch.ones(7, 3, dtype=torch.bool), 7, eps=1e-8)
    assert not out.any()
    returns[0] *= 1.001  # and a small true difference counts as any other
    out = group_advantages(returns, torch.ones(7, 3, dtype=torch.bool), 7, eps=0.0)
    torch.testing.assert_close(out[0], torch.full((3,), 6 / math.sqrt(7)), atol=1e-2, rtol=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_return_reaches_its_own_group_alone(bad: float) -> None:
    returns = torch.tensor([[bad, 1.0], [2.0, 2.0], [bad, 4.0], [1.0, 5.0], [3.0, 6.0], [9.0, 7.0]])  # groups of 3
    valid = torch.ones_like(returns, dtype=torch.bool)
    valid[2] = False  # not alive: 0, whatever the others do
    advantages = group_advantages(returns, valid, 3, 1e-8)
    assert advantages.isfinite().tolist() == [[False, True], [False, True], [True, True], *[[True, True]] * 3]
    assert advantages[2].tolist() == [0, 0]
