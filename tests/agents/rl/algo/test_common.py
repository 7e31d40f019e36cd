"""Legend: N envs, T rollout steps. Slot T holds 99 wherever it is padding: nothing may read it."""

from __future__ import annotations

import math

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo import (
    approx_kl,
    clipped_surrogate,
    compute_gae,
    explained_variance,
    gaussian_kl,
    normalize_advantages,
)
from embodichain.agents.rl.algo.common import adapted_learning_rate, clipped_value_error


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


def test_gae_of_an_unfinished_episode() -> None:
    # delta_1 = 2 + 8/2 - 4 = 2;  delta_0 = 1 + 4/2 - 2 = 1;  A_1 = 2;  A_0 = 1 + 2/4 = 1.5
    assert gae(make_rollout([1, 2], [2, 4, 8], final_value=0)) == ([1.5, 2.0], [3.5, 6.0])


def test_gae_without_final_values_when_nothing_is_truncated() -> None:
    rollout = make_rollout([1, 2], [2, 4, 8])
    rollout["truncated"].zero_()
    assert gae(rollout) == ([1.5, 2.0], [3.5, 6.0])


def test_termination_bootstraps_with_zero_and_cuts_the_chain() -> None:
    # delta_0 = 1 + 0 - 2 = -1, and A_1 = 2 does not reach it
    assert gae(make_rollout([1, 2], [2, 4, 8], terminated=(0,), final_value=0)) == ([-1.0, 2.0], [1.0, 6.0])


def test_truncated_step_bootstraps_from_final_value_and_cuts_the_chain() -> None:
    # delta_0 = 1 + 16/2 - 2 = 7: neither V(s_0) = 2 nor V(s_1) = 4, the next episode's, stands in for 16
    assert gae(make_rollout([1, 2], [2, 4, 8], truncated=(0,), final_value=16)) == ([7.0, 2.0], [9.0, 6.0])


def test_step_both_terminated_and_truncated_counts_as_terminated() -> None:
    rollout = make_rollout([1, 2], [2, 4, 8], terminated=(0,), truncated=(0,), final_value=16)
    assert gae(rollout) == ([-1.0, 2.0], [1.0, 6.0])


def test_truncation_at_the_last_step_does_not_read_the_bootstrap_slot() -> None:
    # delta_1 = 2 + 16/2 - 4 = 6;  A_0 = 1 + 6/4 = 2.5
    assert gae(make_rollout([1, 2], [2, 4, 8], truncated=(1,), final_value=16)) == ([2.5, 6.0], [4.5, 10.0])


def test_truncation_without_final_values_is_an_error() -> None:
    with pytest.raises(ValueError, match="no 'final_value'"):
        compute_gae(make_rollout([1, 2], [2, 4, 8], truncated=(0,)), 0.5, 0.5)


def test_environments_do_not_mix() -> None:
    first = make_rollout([1, 2], [2, 4, 8], terminated=(0,), final_value=0)
    second = make_rollout([1, 2], [2, 4, 8], truncated=(0,), final_value=16)
    both = {name: torch.cat([first[name], second[name]]) for name in first.keys()}  # noqa: SIM118
    advantages, _ = compute_gae(TensorDict(both, batch_size=[2, 3]), 0.5, 0.5)
    assert advantages.tolist() == [[-1.0, 2.0], [7.0, 2.0]]


def test_value_of_an_endless_task_with_a_time_limit_is_the_fixed_point_of_the_returns() -> None:
    # reward 1 for ever: V = 1 / (1 - 0.9) = 10, whatever the time limit cuts
    rollout = make_rollout([1.0] * 6, [10.0] * 7, truncated=(2, 5), final_value=10.0)
    advantages, returns = compute_gae(rollout, gamma=0.9, gae_lambda=0.95)
    torch.testing.assert_close(advantages, torch.zeros(1, 6), atol=1e-5, rtol=0)
    torch.testing.assert_close(returns, torch.full((1, 6), 10.0))


def test_normalised_advantages_have_mean_zero_and_deviation_one() -> None:
    # mean 3, deviation sqrt((4 + 0 + 4) / 3)
    expected = torch.tensor([[-2.0, 0.0, 2.0]]) / math.sqrt(8 / 3)
    torch.testing.assert_close(normalize_advantages(torch.tensor([[1.0, 3.0, 5.0]])), expected)
    assert normalize_advantages(torch.full((4,), 2.0)).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "gradient"),
    [
        (1.1, 2.0, 2.2, 2.0),  # inside the range: r A
        (1.5, 2.0, 2.4, 0.0),  # already made likelier than the range allows: nothing more to gain
        (0.5, -2.0, -1.6, 0.0),  # already made unlikelier
        (0.5, 2.0, 1.0, 2.0),  # moved the wrong way: pulled back
        (1.5, -2.0, -3.0, -2.0),
    ],
)
def test_surrogate_and_its_gradient_on_each_side_of_the_clip(
    ratio: float, advantage: float, objective: float, gradient: float
) -> None:
    r = torch.tensor([ratio], requires_grad=True)
    out = clipped_surrogate(r, torch.tensor([advantage]), clip_coef=0.2)
    assert out.item() == pytest.approx(objective)
    out.sum().backward()
    assert r.grad is not None
    assert r.grad.item() == pytest.approx(gradient)


def test_approx_kl_by_hand() -> None:
    # r = 2 and 1/2: ((2 - 1) - log 2 + (1/2 - 1) + log 2) / 2 = 1/4
    assert approx_kl(torch.tensor([2.0, 0.5]).log()).item() == pytest.approx(0.25)
    assert approx_kl(torch.zeros(3)).item() == 0


@pytest.mark.parametrize(
    ("value", "error", "gradient"),
    [
        # the old value is 1, the return 3, the bound 0.5
        (1.2, 3.24, -3.6),  # (1.2 - 3)^2: inside the bound
        (2.0, 2.25, 0.0),  # (1.5 - 3)^2: moved towards the return further than the bound: nothing more to gain
        (0.0, 9.0, -6.0),  # (0 - 3)^2: moved away from it: pulled back, from beyond the bound too
        (9.0, 36.0, 12.0),  # (9 - 3)^2: far past it
    ],
)
def test_clipped_value_error_and_its_gradient(value: float, error: float, gradient: float) -> None:
    v = torch.tensor([value], requires_grad=True)
    out = clipped_value_error(v, torch.tensor([1.0]), torch.tensor([3.0]), clip_coef=0.5)
    assert out.item() == pytest.approx(error)
    out.sum().backward()
    assert v.grad is not None
    assert v.grad.item() == pytest.approx(gradient)


def test_gaussian_kl_by_hand_and_as_torch_has_it() -> None:
    # KL(N(0, 1) || N(1, e^2)) = 1 + (1 + 1) / (2 e^2) - 1/2, once for each of two components
    zero, one = torch.zeros(1, 2), torch.ones(1, 2)
    assert gaussian_kl(zero, zero, one, one).item() == pytest.approx(2 * (0.5 + math.exp(-2)))
    assert gaussian_kl(one, one, one, one).item() == 0
    torch.manual_seed(0)
    p, q = (torch.distributions.Normal(torch.randn(5, 3), torch.rand(5, 3) + 0.1) for _ in range(2))
    ours = gaussian_kl(p.mean, p.stddev.log(), q.mean, q.stddev.log())
    torch.testing.assert_close(ours, torch.distributions.kl_divergence(p, q).sum(-1))


@pytest.mark.parametrize(
    ("rate", "kl", "expected"),
    [
        (3e-4, 0.021, 2e-4),  # more than twice what is desired: / 1.5
        (3e-4, 0.004, 4.5e-4),  # less than half: * 1.5
        (3e-4, 0.019, 3e-4),  # between
        (3e-4, 0.006, 3e-4),
        (1.2e-5, 1.0, 1e-5),  # within its bounds
        (9e-3, 0.0, 1e-2),
    ],
)
def test_learning_rate_follows_the_kl_divergence(rate: float, kl: float, expected: float) -> None:
    out = adapted_learning_rate(torch.tensor(rate), torch.tensor(kl), desired_kl=0.01)
    assert out.item() == pytest.approx(expected)


def test_explained_variance_of_perfect_constant_and_inverted_predictions() -> None:
    target = torch.tensor([[1.0, 2.0, 3.0]])
    assert explained_variance(target, target).item() == 1
    assert explained_variance(torch.full((1, 3), 5.0), target).item() == pytest.approx(0)
    assert explained_variance(-target, target).item() == pytest.approx(-3)  # Var[2 t] = 4 Var[t]
    assert explained_variance(target, torch.ones(1, 3)).item() == 0
