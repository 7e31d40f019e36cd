"""Distributional critics (HL-Gauss) by hand."""

import math
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import pytest
import torch
from gymnasium import spaces

from embodichain.agents.rl.algo import SAC, SACCfg
from embodichain.agents.rl.models import SoftActorCritic, build_policy
from embodichain.agents.rl.models.registry import parse_policy_block
from embodichain.agents.rl.models.value_bins import ValueBins
from embodichain.utils import ConfigError
from tests.agents.rl.algo.linear_sac import make_batch, update
from tests.agents.rl.fakes import NETWORK

# Four bins of width 1 from 0 to 4; the std of a target is 0.75.
LOGITS = [0.0, math.log(2), math.log(4), 0.0]  # probabilities 1/8, 1/4, 1/2, 1/8


def probabilities(target: float) -> list[float]:
    """Return the probability in each bin of a normal distribution around a target, cut to [0, 4]."""
    below = [NormalDist(target, 0.75).cdf(edge) for edge in range(5)]
    return [(high - low) / (below[4] - below[0]) for low, high in pairwise(below)]


def test_value_is_the_mean_of_the_bins_centres() -> None:
    # 0.5 / 8 + 1.5 / 4 + 2.5 / 2 + 3.5 / 8
    assert ValueBins(0.0, 4.0, 4)(torch.tensor([LOGITS])).tolist() == [pytest.approx(2.125)]


def test_value_is_float32_with_every_precision() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        values = ValueBins(0.0, 4.0, 4)(torch.tensor([LOGITS]))
    assert values.tolist() == [pytest.approx(2.125, abs=1e-6)]
    assert values.dtype == torch.float32


@pytest.mark.parametrize(("target", "used"), [(1.3, 1.3), (0.0, 0.0), (9.0, 4.0), (-2.0, 0.0)])
def test_loss_and_gradient_of_a_target_by_hand(target: float, used: float) -> None:
    logits = torch.tensor([LOGITS], requires_grad=True)
    loss = ValueBins(0.0, 4.0, 4).loss(logits, torch.tensor([target]))
    expected, learned = probabilities(used), [1 / 8, 1 / 4, 1 / 2, 1 / 8]
    assert loss.item() == pytest.approx(-sum(p * math.log(q) for p, q in zip(expected, learned, strict=True)), rel=1e-5)
    loss.sum().backward()
    assert logits.grad is not None
    differences = [q - p for p, q in zip(expected, learned, strict=True)]
    assert logits.grad[0].tolist() == pytest.approx(differences, abs=1e-6)


@pytest.mark.parametrize("target", [math.inf, -math.inf, math.nan])
def test_loss_of_a_target_that_is_not_finite_is_nan(target: float) -> None:
    assert ValueBins(0.0, 4.0, 4).loss(torch.tensor([LOGITS]), torch.tensor([target])).isnan().all()


def make_sac(**block: Any) -> SAC:
    torch.manual_seed(0)
    default = {"name": "soft_actor_critic", "actor": NETWORK, "critic": NETWORK, "normalize_obs": False}
    policy = build_policy({**default, "value_range": (0.0, 4.0), **block}, 1, spaces.Box(-1, 1, (1,)), "cpu")
    return SAC(SACCfg(batch_size=1, learning_rate=0.01, learning_starts=0, replay_capacity=100), policy)


@pytest.mark.parametrize("num_critics", [1, 2])
def test_distributional_critics_learn_the_target(num_critics: int) -> None:
    sac = make_sac(num_critics=num_critics)
    batch = make_batch(reward=(1.3,), discount=(0.0,))
    first = update(sac, batch)["critic_loss"]
    assert first == pytest.approx(num_critics * math.log(101), rel=0.1)  # nearly uniform at the start
    update(sac, batch, num_steps=150)
    assert update(sac, batch)["action_value"] == pytest.approx(1.3, abs=0.05)
    assert isinstance(sac.policy, SoftActorCritic)
    assert sac.policy.action_values(batch, batch["action"]).shape == (num_critics, 1)
    rewards = [make_batch(reward=(reward,), discount=(0.0,)) for reward in (1.3, 4.1, -0.1)]
    assert [update(make_sac(), each)["clamped"] for each in rewards] == [0.0, 1.0, 1.0]  # targets beyond [0, 4]


def test_range_of_values_must_rise() -> None:
    block = {"name": "soft_actor_critic", "actor": NETWORK, "critic": NETWORK, "value_range": [1.0, 1.0]}
    with pytest.raises(ConfigError, match=r"policy\.value_range: .*the lowest must be below the highest"):
        parse_policy_block(block)
