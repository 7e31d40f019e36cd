"""Legend: N envs, T rollout steps, L sequence length."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer import allocate_rollout, iterate_minibatches, learning_batch
from embodichain.agents.rl.buffer.batches import minibatch_sizes


@dataclass
class Reader:
    evaluation_fields: tuple[str, ...] = ("obs",)
    state_size: int = 0
    sequence_length: int | None = None


def make_rollout() -> TensorDict:
    """Return a rollout of N = 2, T = 4 in which slot t of environment n is 10 n + t."""
    entries = TensorDict({"image": torch.zeros(2, 2, dtype=torch.uint8)}, batch_size=[2])
    rollout = allocate_rollout(2, 4, 1, 1, "cpu", state_size=1, entries=entries, extra_fields=[("raw", 1)])
    numbers = 10 * torch.arange(2)[:, None] + torch.arange(5)
    for value in (*(rollout[name] for name in ("obs", "action", "state", "raw")), rollout["entries", "image"]):
        value.copy_(numbers[..., None])
    rollout["sample_log_prob"].copy_(numbers)
    return rollout


def test_batch_has_the_policy_s_fields_and_the_columns_row_by_row() -> None:
    advantage = torch.tensor([[0.0, 1, 2, 3], [10, 11, 12, 13]])
    batch = learning_batch(make_rollout(), Reader(("obs", "entries", "raw")), advantage=advantage)
    assert batch.batch_size == (8,)
    assert set(batch.keys()) == {"obs", "entries", "raw", "action", "sample_log_prob", "advantage"}
    rows = [0, 1, 2, 3, 10, 11, 12, 13]  # the bootstrap slots 4 and 14 are left out
    assert batch["obs"].squeeze(-1).tolist() == batch["advantage"].tolist() == rows
    assert batch["entries", "image"][:, 1].tolist() == rows
    assert batch["entries", "image"].dtype == torch.uint8


def test_sequences_are_pieces_of_consecutive_steps() -> None:
    batch = learning_batch(make_rollout(), Reader(("obs", "state", "done"), 1, 2), ret=torch.zeros(2, 4))
    assert batch.batch_size == (4, 2)
    assert batch["obs"].squeeze(-1).tolist() == [[0, 1], [2, 3], [10, 11], [12, 13]]
    assert batch["state"].shape == (4, 2, 1)


def test_policy_with_memory_and_no_length_gets_the_whole_rollout() -> None:
    batch = learning_batch(make_rollout(), Reader(("obs", "state"), 1))
    assert batch["obs"].squeeze(-1).tolist() == [[0, 1, 2, 3], [10, 11, 12, 13]]


def test_rollout_that_cannot_be_cut_into_sequences_is_refused() -> None:
    with pytest.raises(ValueError, match=r"policy.sequence_length: a rollout of 4 steps.*sequences of 3"):
        learning_batch(make_rollout(), Reader(sequence_length=3))


def test_minibatches_hold_every_row_once_and_a_remainder() -> None:
    flat = TensorDict({"row": torch.arange(10), "twice": 2 * torch.arange(10)}, batch_size=[10])
    minibatches = list(iterate_minibatches(flat, batch_size=4, device="cpu"))
    assert [m.batch_size[0] for m in minibatches] == [4, 4, 2]
    rows = torch.cat([m["row"] for m in minibatches])
    assert rows.sort().values.tolist() == list(range(10))
    assert all(torch.equal(m["twice"], 2 * m["row"]) for m in minibatches)


def test_minibatches_are_shuffled_anew_each_time() -> None:
    torch.manual_seed(0)
    flat = TensorDict({"row": torch.arange(32)}, batch_size=[32])
    first, second = (next(iterate_minibatches(flat, 32, "cpu"))["row"].tolist() for _ in range(2))
    assert list(range(32)) not in (first, second)
    assert first != second


def test_minibatches_of_sequences_count_transitions() -> None:
    # 5 sequences of 3: at most 7 transitions are 2 sequences
    batch = TensorDict({"row": torch.arange(15).reshape(5, 3)}, batch_size=[5, 3])
    minibatches = list(iterate_minibatches(batch, batch_size=7, device="cpu"))
    assert [tuple(m.batch_size) for m in minibatches] == [(2, 3), (2, 3), (1, 3)]
    sequences = torch.cat([m["row"] for m in minibatches])
    assert sequences[sequences[:, 0].argsort()].tolist() == batch["row"].tolist()


def test_minibatch_smaller_than_a_sequence_is_refused() -> None:
    batch = TensorDict({"row": torch.zeros(5, 3)}, batch_size=[5, 3])
    with pytest.raises(ValueError, match=r"algorithm.cfg.batch_size: 2 transitions.*sequence of the policy, 3"):
        next(iterate_minibatches(batch, batch_size=2, device="cpu"))


@pytest.mark.parametrize(
    ("counts", "size", "expected"),
    [
        ([10], 4, [[4, 4, 2]]),
        ([10, 10], 4, [[4, 4, 2], [4, 4, 2]]),
        # 12 of 40 rows in each: 3/10 of the own ones.
        ([10, 30], 6, [[3, 3, 3, 1], [9, 9, 9, 3]]),
        # A process with 2 rows has one for each of two minibatches at most: 52 of 102 together.
        ([2, 100], 5, [[1, 1], [50, 50]]),
        ([0, 6], 2, [[0, 0], [4, 2]]),
        ([0, 0], 2, [[0], [0]]),
    ],
)
def test_processes_have_equal_numbers_of_minibatches(counts: list[int], size: int, expected: list[list[int]]) -> None:
    assert [minibatch_sizes(count, size, counts) for count in counts] == expected


def test_no_minibatch_is_empty_and_none_is_left_out() -> None:
    for first in range(1, 40, 3):
        for second in range(1, 40, 5):
            for size in (1, 4, 7):
                counts = [first, second]
                sizes = [minibatch_sizes(count, size, counts) for count in counts]
                assert len(sizes[0]) == len(sizes[1])
                assert [sum(own) for own in sizes] == counts
                assert min(map(min, sizes)) >= 1
