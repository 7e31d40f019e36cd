"""Legend: N envs, T rollout steps."""

from dataclasses import dataclass

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer import (
    RolloutBuffer,
    allocate_rollout,
    iterate_minibatches,
    learning_batch,
    transition_view,
)
from embodichain.agents.rl.buffer.rollout_buffer import check_sequences, minibatch_sizes
from embodichain.utils import ConfigError


def make_buffer() -> RolloutBuffer:
    return RolloutBuffer(num_envs=2, rollout_len=3, obs_dim=1, action_dim=1, device="cpu")


def test_buffer_is_full_from_add_to_get_and_keeps_its_storage() -> None:
    buffer = make_buffer()
    with pytest.raises(RuntimeError, match=r"add\(\) first"):
        buffer.get()
    first = buffer.start_rollout()
    with pytest.raises(ValueError, match="start_rollout"):
        buffer.add(first.clone())
    assert not buffer.is_full()
    buffer.add(first)
    assert buffer.is_full()
    with pytest.raises(RuntimeError, match=r"get\(\) first"):
        buffer.start_rollout()
    buffer.get()
    assert not buffer.is_full()
    assert buffer.start_rollout()["obs"].data_ptr() == first["obs"].data_ptr()


def test_transitions_leave_out_the_bootstrap_slot() -> None:
    buffer = make_buffer()
    rollout = buffer.start_rollout()
    rollout["reward"].copy_(torch.tensor([[0.0, 1, 2, 99], [10, 11, 12, 99]]))
    assert transition_view(rollout, flatten=False)["reward"].tolist() == [[0, 1, 2], [10, 11, 12]]
    assert transition_view(rollout, flatten=True)["reward"].tolist() == [0, 1, 2, 10, 11, 12]
    transition_view(rollout, flatten=False)["reward"][1, 2] = 7  # a view
    assert rollout["reward"][1, 2] == 7
    buffer.add(rollout)
    assert buffer.get(flatten=True)["obs"].shape == (6, 1)
    buffer.add(rollout)
    assert buffer.get(flatten=False) is rollout  # [N, T+1]


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


def test_batch_has_the_policys_fields_and_the_columns() -> None:
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


def test_recurrent_policy_gets_whole_rollouts() -> None:
    batch = learning_batch(make_rollout(), Reader(("obs", "state"), 1))
    assert batch["obs"].squeeze(-1).tolist() == [[0, 1, 2, 3], [10, 11, 12, 13]]


@pytest.mark.parametrize(
    ("num_steps", "batch_size", "message"),
    [(4, 8, r"policy.sequence_length: a rollout of 4 .*sequences of 3"), (6, 2, r"algorithm.cfg.batch_size: 2 .*, 3")],
)
def test_sequences_that_do_not_fit_are_refused(num_steps: int, batch_size: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_sequences(Reader(sequence_length=3), num_steps, batch_size)


def test_sequences_never_cross_environments() -> None:
    with pytest.raises(RuntimeError):  # 2 environments x 4 steps are 8, but 3 is no divisor of 4
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
