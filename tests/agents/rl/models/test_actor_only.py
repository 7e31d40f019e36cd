"""Legend: N envs, O flattened observation size, A action size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models import ActorCritic, ActorOnly, RunningNormalizer, TanhSquash, build_policy
from embodichain.utils import ConfigError

ACTION = spaces.Box(np.array([-1.0, 0.0], dtype=np.float32), np.array([1.0, 4.0], dtype=np.float32))
NET: dict[str, Any] = {"type": "mlp", "network_cfg": {"hidden_sizes": [5], "orthogonal_init": True}}


def make_pair(**settings: Any) -> tuple[ActorOnly, ActorCritic]:
    """The policy, and the one with a critic that has the same actor."""
    torch.manual_seed(0)
    actor = nn.Linear(3, 2)
    return ActorOnly(3, 2, "cpu", actor, **settings), ActorCritic(3, 2, "cpu", actor, nn.Linear(3, 1), **settings)


@pytest.mark.parametrize("batch_size", [(4,), (4, 5)])
@pytest.mark.parametrize("squashed", [False, True])
def test_it_acts_and_evaluates_as_an_actor_critic_does_but_for_the_value(
    batch_size: tuple[int, ...], squashed: bool
) -> None:
    policies = make_pair(init_log_std=-0.5, normalize_obs=True, squash=TanhSquash(ACTION) if squashed else None)
    obs = torch.randn(*batch_size, 3)
    results = []
    for policy in policies:
        policy.update_normalizer(obs)
        torch.manual_seed(1)
        td = policy.get_action(TensorDict({"obs": obs}, batch_size=batch_size))
        results.append((td, policy.evaluate_actions(td)))
    (td, out), (td_with_critic, out_with_critic) = results
    for ours, theirs in ((td, td_with_critic), (out, out_with_critic)):
        assert ours["value"].shape == batch_size
        assert not ours["value"].any()
        assert set(ours.keys()) == set(theirs.keys())
        assert (ours.exclude("value") == theirs.exclude("value")).all()
    torch.testing.assert_close(out["sample_log_prob"], td["sample_log_prob"])
    assert out["mean"].shape == out["log_std"].shape == (*batch_size, 2)


def test_value_is_zeros_and_written_alone() -> None:
    policy, _ = make_pair()
    td = TensorDict({"obs": torch.randn(4, 3)}, batch_size=[4])
    assert policy.get_value(td) is td
    assert td["value"].tolist() == [0, 0, 0, 0]
    assert sorted(td.keys()) == ["obs", "value"]


def test_deterministic_action_is_the_mean() -> None:
    policy, _ = make_pair()
    td = policy.get_action(TensorDict({"obs": torch.randn(4, 3)}, batch_size=[4]), deterministic=True)
    torch.testing.assert_close(td["action"], policy.actor(td["obs"]).detach())


def test_it_is_built_from_its_block_or_around_a_network() -> None:
    block = {"name": "actor_only", "actor": NET, "normalize_obs": True, "init_log_std": -0.5}
    policy = build_policy(block, 3, ACTION, "cpu")
    assert isinstance(policy, ActorOnly)
    assert isinstance(policy.normalizer, RunningNormalizer)
    assert policy.log_std.tolist() == [-0.5, -0.5]
    # a small last layer where the initialisation is orthogonal, as for every actor
    torch.testing.assert_close(list(policy.actor.parameters())[-2].norm(dim=1), torch.full((2,), 0.01))
    actor = nn.Linear(3, 2)
    policy = build_policy({"name": "actor_only"}, 3, ACTION, "cpu", actor=actor)
    assert isinstance(policy, ActorOnly)
    assert policy.actor is actor


def test_block_without_an_actor_or_with_a_critic_is_an_error_that_says_so() -> None:
    message = r"^policy: policy 'actor_only' needs an 'actor' network; the block has no 'actor'$"
    with pytest.raises(ConfigError, match=message):
        build_policy({"name": "actor_only"}, 3, ACTION, "cpu")
    with pytest.raises(ConfigError, match=r"^policy.critic: unknown key"):
        build_policy({"name": "actor_only", "actor": NET, "critic": NET}, 3, ACTION, "cpu")
