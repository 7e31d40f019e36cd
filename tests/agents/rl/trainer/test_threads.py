"""How many threads an update gets."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from embodichain.agents.rl.trainer.threads import worthwhile_threads
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
