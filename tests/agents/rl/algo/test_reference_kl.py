"""The divergence from the reference policy."""

from __future__ import annotations

import math

import pytest
import torch

from embodichain.agents.rl.algo import gaussian_kl
from embodichain.agents.rl.algo.on_policy import reference_kl


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
