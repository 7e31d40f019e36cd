"""The divergence from the reference policy: its estimate, and what PPO and GRPO do with it alike."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch

from embodichain.agents.rl.algo import GRPO, PPO, GRPOCfg, PPOCfg, gaussian_kl
from embodichain.agents.rl.algo.on_policy import reference_kl
from embodichain.agents.rl.models import ActorCritic
from tests.agents.rl.algo.test_ppo import make_policy, make_rollout


def test_reference_kl_by_hand() -> None:
    # pi/old = 2, ref/pi = 3: 2 (3 - 1 - log 3)
    out = reference_kl(torch.tensor([2.0]).log(), torch.tensor([1.0]).log(), torch.tensor([6.0]).log())
    assert out.item() == pytest.approx(2 * (2 - math.log(3)))
    assert reference_kl(torch.zeros(1), torch.zeros(1), torch.zeros(1)).item() == 0


def log_prob(action: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    return torch.distributions.Normal(mean, log_std.exp()).log_prob(action)


def test_value_and_gradient_are_those_of_the_kl_divergence_to_the_reference_not_from_it() -> None:
    # old N(0, 1), pi N(0.3, 0.9^2), ref N(-0.2, 1.2^2)
    torch.manual_seed(0)
    sample = torch.randn(200_000, dtype=torch.float64)
    zero, ref_mean, ref_log_std = torch.zeros(2, 1, dtype=torch.float64), torch.tensor(-0.2), torch.tensor(1.2).log()
    params = torch.tensor([0.3, math.log(0.9)], dtype=torch.float64, requires_grad=True)

    pi = log_prob(sample, *params)
    estimate = reference_kl(pi, log_prob(sample, *zero), log_prob(sample, ref_mean, ref_log_std)).mean()
    (gradient,) = torch.autograd.grad(estimate, params)

    mean, log_std = params[:1], params[1:]
    exact = gaussian_kl(mean, log_std, ref_mean[None].double(), ref_log_std[None].double())
    (exact_gradient,) = torch.autograd.grad(exact, params)
    wrong = gaussian_kl(ref_mean[None].double(), ref_log_std[None].double(), mean, log_std)
    (wrong_gradient,) = torch.autograd.grad(wrong, params)
    # a sample's gradient has a deviation of about 1: the mean's is 0.002
    torch.testing.assert_close(estimate, exact, atol=0.004, rtol=0)
    torch.testing.assert_close(gradient, exact_gradient, atol=0.01, rtol=0)
    assert (gradient - wrong_gradient).abs().max() > 0.1


def ppo(policy: ActorCritic, kl_coef: float = 0.0, n_epochs: int = 10) -> PPO:
    return PPO(PPOCfg(kl_coef=kl_coef, learning_rate=0.01, n_epochs=n_epochs), policy)


def grpo(policy: ActorCritic, kl_coef: float = 0.0, n_epochs: int = 10) -> GRPO:
    return GRPO(GRPOCfg(kl_coef=kl_coef, learning_rate=0.01, n_epochs=n_epochs, group_size=2), policy)


Algorithm = Callable[..., PPO | GRPO]
algorithms = pytest.mark.parametrize("make", [ppo, grpo])


@algorithms
def test_divergence_pulls_the_policy_back_and_is_measured_from_where_the_training_began(make: Algorithm) -> None:
    policy = make_policy()
    algo = make(policy, kl_coef=1.0, n_epochs=5)
    with torch.no_grad():
        policy.log_std.add_(0.5)  # the reference's is 0
    rollout = make_rollout(policy, N=64, T=16)
    rollout["reward"].zero_()
    rollout["value"].zero_()
    assert algo.update(rollout)["reference_kl"] > 0.1
    assert 0.3 < policy.log_std.item() < 0.47  # five of Adam's steps of 0.01


@algorithms
def test_reference_comes_back_from_the_state(make: Algorithm) -> None:
    policy = make_policy()
    algo = make(policy, kl_coef=0.5)
    rollout = make_rollout(policy)
    algo.update(rollout)
    other_policy = copy.deepcopy(policy)
    other = make(other_policy, kl_coef=0.5)  # its reference is the policy as it is now
    other.load_state_dict(copy.deepcopy(algo.state_dict()))
    for each in (algo, other):
        torch.manual_seed(1)
        each.update(rollout)
    assert all(torch.equal(value, other_policy.state_dict()[name]) for name, value in policy.state_dict().items())


@algorithms
def test_only_a_weight_keeps_a_reference(make: Algorithm) -> None:
    algo = make(make_policy())
    assert algo.reference is None
    assert set(algo.state_dict()) == {"optimizer"}
