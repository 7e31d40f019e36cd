"""How many threads an update gets."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models import MLP, Policy, build_policy
from embodichain.agents.rl.models.actor_critic import ActorCritic, ActorOnly
from embodichain.agents.rl.models.block import run_networks
from embodichain.agents.rl.models.mlp_by_rows import RunByRows
from embodichain.agents.rl.trainer.threads import update_threads, worthwhile_threads
from embodichain.utils.device import torch_threads
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


@pytest.mark.parametrize(("batch_size", "threads"), [(256, 1), (512, 2), (1024, 2), (2048, 4), (4096, 8), (8192, 8)])
def test_third_thread_by_rows_needs_twice_the_work(batch_size: int, threads: int) -> None:
    """2 x 256 x 256 x 2048 = 268 million operations are 8 times those of a thread."""
    block = {"name": "actor_only", "actor": {"type": "mlp", "network_cfg": {"hidden_sizes": [256, 256]}}}
    assert worthwhile_threads(build_policy(block, 3, 2, "cpu"), batch_size, 100, 8) == threads


def test_policy_with_a_memory_takes_a_step_of_each_sequence_at_a_time() -> None:
    def threads(sequence_length: int | None) -> int:
        return worthwhile_threads(policy_with((256, 256), state_size=4, sequence_length=sequence_length), 8192, 128, 8)

    # 8192 transitions are 512 sequences of 16 (67 million operations), or 64 whole rollouts (8.4)
    assert (threads(16), threads(None)) == (2, 1)


def test_convolutions_take_all_threads() -> None:
    assert worthwhile_threads(policy_with((4, 3, 3, 3)), 16, 8, 6) == 6


def test_number_of_threads_is_given_back() -> None:
    before = torch.get_num_threads()

    def fail() -> None:
        with torch_threads(before + 1):
            assert torch.get_num_threads() == before + 1
            raise ValueError("oh")

    with pytest.raises(ValueError, match="oh"):
        fail()
    assert torch.get_num_threads() == before


class OwnEvaluation(ActorOnly):
    """A user's policy, whose networks are called by its own code."""

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        return super().evaluate_actions(td)


def test_update_splits_the_rows_of_plain_mlps_and_nothing_stays() -> None:
    policy = ActorCritic(3, 2, "cpu", MLP(3, 2, [4]), MLP(3, 1, [4]))
    with update_threads(policy, 3):
        assert isinstance(policy.run_networks, RunByRows)
        assert (torch.get_num_threads(), policy.run_networks.threads.number) == (1, 3)
    assert policy.run_networks is run_networks


@pytest.mark.parametrize(
    "policy",
    [
        ActorCritic(3, 2, "cpu", MLP(3, 2, [4]), nn.Linear(3, 1)),
        ActorOnly(3, 2, "cpu", MLP(3, 2, [4], layer_norm=True)),
        OwnEvaluation(3, 2, "cpu", MLP(3, 2, [4])),
        linear_policy(),
    ],
)
def test_update_of_other_networks_and_policies_takes_torchs_threads(policy: Policy) -> None:
    before = dict(vars(policy))
    with update_threads(policy, 3):
        assert torch.get_num_threads() == 3
        assert vars(policy) == before


def test_update_that_fails_gives_the_networks_back() -> None:
    policy = ActorOnly(3, 2, "cpu", MLP(3, 2, [4]))
    with pytest.raises(ValueError, match="oh"), update_threads(policy, 2):
        raise ValueError("oh")
    assert policy.run_networks is run_networks
