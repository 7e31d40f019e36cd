"""Gaussian policies that choose chunks. Legend: B states, OBS observation size, H actions of a chunk, A action size."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch.distributions import Normal

from embodichain.agents.rl.models import Policy, build_policy
from embodichain.utils import ConfigError

B, OBS, H, A = 5, 3, 4, 2
BOX = spaces.Box(-2.0, 4.0, (A,))
NETWORK = {"type": "mlp", "network_cfg": {"hidden_sizes": [8]}}


def make(chunk_length: int = H, name: str = "actor_critic", **changes: Any) -> Policy:
    torch.manual_seed(0)
    block = {"name": name, "actor": NETWORK, "chunk_length": chunk_length, "init_log_std": -0.3, **changes}
    if name == "actor_critic":
        block["critic"] = NETWORK
    return build_policy(block, OBS, BOX, "cpu")


def states() -> TensorDict:
    return TensorDict({"obs": torch.randn(B, OBS, generator=torch.Generator().manual_seed(1))}, batch_size=[B])


@pytest.mark.parametrize("name", ["actor_critic", "actor_only"])
@pytest.mark.parametrize("squash", [False, True])
def test_shapes_are_those_of_chunks_and_log_probabilities_stay_apart(name: str, squash: bool) -> None:
    policy = make(name=name, squash=squash)
    assert policy.chunk_length == H
    assert policy.extra_fields == ((("raw_action", H * A),) if squash else ())
    td = policy.get_action(states())
    assert td["action"].shape == td["sample_log_prob"].shape == (B, H, A)
    assert td["value"].shape == (B,)
    again = policy.evaluate_actions(td)
    torch.testing.assert_close(again["sample_log_prob"], td["sample_log_prob"])
    for key in ("entropy", "mean", "log_std"):
        assert again[key].shape == (B, H, A)
    torch.testing.assert_close(again["value"], td["value"])
    if squash:
        assert ((td["action"] > -2) & (td["action"] < 4)).all()


def test_log_probability_and_entropy_of_each_component_are_the_normal_distributions() -> None:
    policy = make()
    td = policy.get_action(states())
    out = policy.evaluate_actions(td)
    normal = Normal(out["mean"], out["log_std"].exp())
    torch.testing.assert_close(out["sample_log_prob"], normal.log_prob(td["action"]))
    torch.testing.assert_close(out["entropy"], normal.entropy())


@pytest.mark.parametrize("squash", [False, True])
def test_sum_over_a_chunk_is_the_log_probability_of_one_long_action(squash: bool) -> None:
    chunks, one = make(H, squash=squash), make(1, squash=squash)
    long = build_policy(
        {"name": "actor_critic", "actor": NETWORK, "critic": NETWORK, "squash": squash},
        OBS,
        spaces.Box(-2.0, 4.0, (H * A,)),
        "cpu",
    )
    long.load_state_dict(chunks.state_dict())
    torch.manual_seed(3)
    ours = chunks.get_action(states())
    torch.manual_seed(3)
    theirs = long.get_action(states())
    torch.testing.assert_close(ours["action"].flatten(1), theirs["action"])
    torch.testing.assert_close(ours["sample_log_prob"].sum((1, 2)), theirs["sample_log_prob"])
    assert one.chunk_length == 1


def test_chunk_of_one_is_the_ordinary_policy_to_the_last_bit() -> None:
    chunks = make(1)
    torch.manual_seed(0)
    block = {"name": "actor_critic", "actor": NETWORK, "critic": NETWORK, "init_log_std": -0.3}
    plain = build_policy(block, OBS, BOX, "cpu")
    results = []
    for policy in (chunks, plain):
        torch.manual_seed(3)
        results.append(policy.get_action(states()))
    assert (results[0] == results[1]).all()
    assert results[0]["action"].shape == (B, A)


def test_most_likely_chunk_is_the_mean() -> None:
    policy = make()
    td = policy.get_action(states(), deterministic=True)
    assert torch.equal(td["action"], policy.evaluate_actions(td)["mean"])


def test_chunk_without_actions_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"policy\.chunk_length: .*greater than 0"):
        make(0)
