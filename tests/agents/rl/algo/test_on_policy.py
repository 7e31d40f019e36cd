from __future__ import annotations

import math

import pytest
import torch

from embodichain.agents.rl.algo import AlgorithmCfg, clipped_surrogate
from embodichain.agents.rl.algo.on_policy import k3


def test_minibatch_larger_than_the_rollout_is_noticed() -> None:
    cfg = AlgorithmCfg(batch_size=8)
    assert cfg.notices(8, 80) == []
    assert cfg.notices(7, 70) == [
        "algorithm.cfg.batch_size: 8 is more than the 7 transitions of a rollout (trainer.num_envs x "
        "trainer.buffer_size), which is one minibatch"
    ]
    assert AlgorithmCfg().notices(7, 70) == []  # the default is an upper limit


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


def test_k3_by_hand() -> None:
    # r = 2 and 1/2: (2 - 1) - log 2 and (1/2 - 1) + log 2
    expected = [1 - math.log(2), math.log(2) - 0.5]
    assert k3(torch.tensor([2.0, 0.5]).log()).tolist() == pytest.approx(expected)
    assert k3(torch.zeros(3)).tolist() == [0, 0, 0]
