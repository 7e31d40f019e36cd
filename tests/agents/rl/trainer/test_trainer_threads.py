"""How many threads an update gets."""

from typing import Any

import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models import Policy, build_policy
from embodichain.agents.rl.trainer.trainer import update_precision, worthwhile_threads
from tests.agents.rl.fakes import linear_policy


def policy_with(*shapes: tuple[int, ...], state_size: int = 0, sequence_length: int | None = None):
    policy = linear_policy()
    policy.more = nn.ParameterList([nn.Parameter(torch.zeros(shape)) for shape in shapes])
    policy.state_size, policy.sequence_length = state_size, sequence_length
    return policy


@pytest.mark.parametrize(
    ("width", "batch_size", "threads"),
    [
        (64, 1024, 1),  # 2 x 1024 x 64 x 64 = 8.4 million operations
        (64, 8192, 2),  # 67
        (256, 512, 2),  # 67
        (256, 1024, 4),  # 134
        (256, 4096, 8),  # 537, for 16 threads, of which there are 8
        (0, 2048, 1),
    ],
)
def test_threads_follow_from_the_largest_product(width: int, batch_size: int, threads: int) -> None:
    assert worthwhile_threads(policy_with((width, width), (width,)), batch_size, 100, 8) == threads


def test_recurrent_policy_takes_a_step_of_each_sequence() -> None:
    def threads(sequence_length: int | None) -> int:
        return worthwhile_threads(policy_with((256, 256), state_size=4, sequence_length=sequence_length), 8192, 128, 8)

    # 8192 transitions are 512 sequences of 16 (67 million operations), or 64 whole rollouts (8.4)
    assert (threads(16), threads(None)) == (2, 1)


def test_critics_side_by_side_are_one_product() -> None:
    # 2 x 256 x 2 x 64 x 64 = 4.2 million operations, and 67
    assert [worthwhile_threads(policy_with((2, width, width)), 256, 1, 8) for width in (64, 256)] == [1, 2]


def test_convolutions_take_all_threads() -> None:
    assert worthwhile_threads(policy_with((4, 3, 3, 3)), 16, 8, 6) == 6


CPU = torch.device("cpu")
MLP = {"type": "mlp", "network_cfg": {"hidden_sizes": [32], "activation": "tanh"}}
POLICIES: dict[str, dict[str, Any]] = {
    "actor_critic": {"name": "actor_critic", "actor": MLP, "critic": MLP, "normalize_obs": True},
    "actor_only": {"name": "actor_only", "actor": MLP},
    "actor_critic_recurrent": {"name": "actor_critic_recurrent", "actor": MLP, "critic": MLP},
}


def test_a_step_is_seen_by_the_next_product_of_the_same_update() -> None:
    # A copy of the weights in bfloat16, kept from one step to the next, would never learn within an update.
    layer, x = nn.Linear(64, 8), torch.randn(16, 64)
    with update_precision("bf16", CPU):
        before = layer(x)
        with torch.no_grad():
            layer.weight.zero_()
            layer.bias.zero_()
        assert before.any()
        assert not layer(x).any()


@pytest.mark.parametrize("kind", POLICIES)
def test_policies_give_float32_near_what_float32_gives(kind: str) -> None:
    torch.manual_seed(0)
    space = spaces.Box(-1.0, 1.0, (3,))
    policy = build_policy(POLICIES[kind], spaces.Box(-5.0, 5.0, (6,)), space, CPU)
    batch = batch_for(policy)
    expected = policy.evaluate_actions(batch)
    with update_precision("float32", CPU):
        assert torch.equal(policy.evaluate_actions(batch)["mean"], expected["mean"])
    with update_precision("bf16", CPU):
        found = policy.evaluate_actions(batch)
    has_value = ["value"] if kind != "actor_only" else []
    for name in ["sample_log_prob", "mean", *has_value]:
        assert found[name].dtype == torch.float32
        assert not torch.equal(found[name], expected[name])  # the products did not stay float32
        torch.testing.assert_close(found[name], expected[name], atol=0.05, rtol=0.02)  # bfloat16 has 8 bits


def batch_for(policy: Policy) -> TensorDict:
    """Return a batch [5, 4] for a policy of 6 observations and 3 actions."""
    batch = TensorDict({"obs": torch.randn(5, 4, 6), "action": torch.randn(5, 4, 3)}, [5, 4])
    if policy.state_size:
        batch["state"] = torch.zeros(5, 4, policy.state_size)
        batch["done"] = torch.zeros(5, 4, dtype=torch.bool)
    return batch
