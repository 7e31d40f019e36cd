"""Users' networks for ``actor.type``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import embodichain as ec
from embodichain.agents.rl.models import build_policy, networks
from embodichain.agents.rl.models.registry import parse_policy_block
from embodichain.utils import ConfigError


@pytest.fixture(autouse=True)
def residual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "_NETWORKS", {})

    @ec.register_network("residual")
    class Residual(nn.Module):
        def __init__(self, in_dim: int, out_dim: int, width: int = 8, blocks: int = 1) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(in_dim, width), nn.Linear(width, out_dim)
            self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(blocks))

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            for block in self.blocks:
                x = x + torch.relu(block(x))
            out: Tensor = self.last(x)
            return out


def block(**network_cfg: Any) -> dict[str, Any]:
    network = {"type": "residual", "network_cfg": network_cfg}
    return {"name": "actor_critic", "actor": network, "critic": network}


def test_registered_network_is_built_with_its_arguments() -> None:
    policy = build_policy(block(width=5, blocks=3), 4, 2, "cpu")
    assert policy.actor.first.weight.shape == (5, 4)  # type: ignore[union-attr]
    assert len(policy.actor.blocks) == 3  # type: ignore[union-attr,arg-type]
    assert policy.block is not None
    assert policy.block["actor"] == {"type": "residual", "network_cfg": {"width": 5, "blocks": 3}}


def test_unknown_argument_of_a_network_is_named() -> None:
    with pytest.raises(ConfigError, match=r"policy\.actor\.network_cfg: .*unexpected keyword argument 'widht'"):
        parse_policy_block(block(widht=5))


def test_unknown_network_lists_the_known_ones() -> None:
    wrong = {"type": "residul"}
    with pytest.raises(ConfigError, match=r"policy\.actor\.type: .*'residul'\. Did you mean 'residual'\?.* cnn, mlp"):
        parse_policy_block({"name": "actor_critic", "actor": wrong, "critic": {}})


def test_class_that_is_no_module_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"is no subclass of torch\.nn\.Module"):
        ec.register_network("mine")(dict)  # type: ignore[type-var]
