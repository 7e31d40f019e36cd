"""SAC from images. Legend: B batch, H height, W width, C channels."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.algo import SAC, SACCfg
from embodichain.agents.rl.models import build_policy
from tests.agents.rl.algo.linear_sac import update

B = 4
MLP: dict[str, Any] = {"type": "mlp", "network_cfg": {"hidden_sizes": [5]}}
ENCODER: dict[str, Any] = {
    "keys": ["camera"],
    "network_cfg": {"channels": [2], "kernel_sizes": [2], "strides": [2]},
    "num_features": 3,
}
SPACE = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "camera": spaces.Box(0, 255, (4, 4, 3), np.uint8)})


def make(**settings: Any) -> SAC:
    torch.manual_seed(0)
    block = {"name": "soft_actor_critic", "actor": MLP, "critic": MLP, "encoder": ENCODER}
    policy = build_policy(block, 2, spaces.Box(-1, 1, (1,)), "cpu", observation_space=SPACE)
    return SAC(SACCfg(learning_starts=0, batch_size=B, **settings), policy)


def observed() -> TensorDict:
    camera = torch.randint(256, (B, 4, 4, 3), dtype=torch.uint8)
    return TensorDict({"obs": torch.randn(B, 2), "entries": TensorDict({"camera": camera}, [B])}, [B])


def make_batch() -> TensorDict:
    fields = {"action": torch.rand(B, 1), "reward": torch.ones(B), "discount": torch.full((B,), 0.5)}
    return observed().update({**fields, "next": observed()})


def weights(sac: SAC, part: str) -> Tensor:
    return torch.cat([p.detach().flatten().clone() for p in sac.policy.get_submodule(part).parameters()])


@pytest.mark.parametrize(
    ("rates", "moved"),
    [
        ({"critic_learning_rate": 0.1, "learning_rate": 1e-30}, {"encoder": True, "critics": True, "actor": False}),
        ({"critic_learning_rate": 1e-30, "learning_rate": 0.1}, {"encoder": False, "critics": False, "actor": True}),
    ],
)
def test_the_critics_alone_train_the_encoder(rates: dict[str, float], moved: dict[str, bool]) -> None:
    sac = make(**rates)
    before = {part: weights(sac, part) for part in moved}
    update(sac, make_batch())
    # A rate of 1e-30 moves biases of 0 by as little.
    assert {part: not torch.allclose(weights(sac, part), before[part], atol=1e-9) for part in moved} == moved


def test_images_are_encoded_once_in_a_gradient_step() -> None:
    sac, calls = make(), []
    assert sac.policy.encoder is not None
    sac.policy.encoder.register_forward_hook(lambda module, given, out: calls.append(out.requires_grad))
    update(sac, make_batch(), num_steps=3)
    assert calls == [True, False] * 3  # targets have no gradient
