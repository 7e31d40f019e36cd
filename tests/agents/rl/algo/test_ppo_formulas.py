"""PPO's formulas, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from embodichain.agents.rl.algo import gaussian_kl
from embodichain.agents.rl.algo.ppo import value_error


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
    out = value_error(v, torch.tensor([3.0]), old_value=torch.tensor([1.0]), clip_coef=0.5)
    assert out.item() == pytest.approx(error)
    out.sum().backward()
    assert v.grad is not None
    assert v.grad.item() == pytest.approx(gradient)


def test_value_error_without_a_bound_is_the_square() -> None:
    assert value_error(torch.tensor([2.0, 9.0]), torch.tensor([3.0, 3.0])).tolist() == [1, 36]


def test_gaussian_kl_by_hand_and_as_torch_has_it() -> None:
    # KL(N(0, 1) || N(1, e^2)) = 1 + (1 + 1) / (2 e^2) - 1/2, once for each of two components
    zero, one = torch.zeros(1, 2), torch.ones(1, 2)
    assert gaussian_kl(zero, zero, one, one).item() == pytest.approx(2 * (0.5 + math.exp(-2)))
    assert gaussian_kl(one, one, one, one).item() == 0
    torch.manual_seed(0)
    p, q = (torch.distributions.Normal(torch.randn(5, 3), torch.rand(5, 3) + 0.1) for _ in range(2))
    ours = gaussian_kl(p.mean, p.stddev.log(), q.mean, q.stddev.log())
    torch.testing.assert_close(ours, torch.distributions.kl_divergence(p, q).sum(-1))
