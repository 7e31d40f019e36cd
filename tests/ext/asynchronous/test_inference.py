"""Draws that leave torch's global generator alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.distributions import Categorical, Normal

from embodichain.ext.asynchronous.inference import OwnDraws

DRAWS: dict[str, Callable[[], torch.Tensor]] = {
    "randn_like": lambda: torch.randn_like(torch.ones(3)),
    "rand": lambda: torch.rand(3, device="cpu"),
    "normal_": lambda: torch.empty(3).normal_(),
    "Normal.sample": lambda: Normal(torch.zeros(3), torch.ones(3)).sample(),
    "Normal.rsample": lambda: Normal(torch.zeros(3), torch.ones(3)).rsample(),
    "_standard_gamma": lambda: torch._standard_gamma(torch.ones(3)),
    "Categorical.sample": lambda: Categorical(logits=torch.zeros(40)).sample(torch.Size([3])),
}


@pytest.mark.parametrize("name", list(DRAWS))
def test_draws_follow_from_the_seed_alone(name: str) -> None:
    draw = DRAWS[name]
    torch.manual_seed(5)
    expected = draw()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    draws = OwnDraws(5)
    with draws:
        first = draw()
    with draws:
        second = draw()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, expected)
    assert not torch.equal(second, first)


def test_dropout_still_draws_from_the_global_generator() -> None:
    before = torch.get_rng_state()
    with OwnDraws(5):
        torch.nn.functional.dropout(torch.ones(8))
    assert not torch.equal(torch.get_rng_state(), before)
