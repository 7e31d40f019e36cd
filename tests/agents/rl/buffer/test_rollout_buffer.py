"""Legend: N envs, T rollout steps."""

from __future__ import annotations

import pytest
import torch

from embodichain.agents.rl.buffer import RolloutBuffer, transition_view


def make_buffer() -> RolloutBuffer:
    return RolloutBuffer(num_envs=2, rollout_len=3, obs_dim=1, action_dim=1, device="cpu")


def test_every_rollout_uses_the_same_storage() -> None:
    buffer = make_buffer()
    first = buffer.start_rollout()
    buffer.add(first)
    buffer.get()
    assert buffer.start_rollout()["obs"].data_ptr() == first["obs"].data_ptr()


def test_buffer_is_full_from_add_to_get() -> None:
    buffer = make_buffer()
    assert not buffer.is_full()
    buffer.add(buffer.start_rollout())
    assert buffer.is_full()
    buffer.get()
    assert not buffer.is_full()


def test_get_without_a_complete_rollout_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"add\(\) first"):
        make_buffer().get()


def test_starting_over_an_unread_rollout_is_an_error() -> None:
    buffer = make_buffer()
    buffer.add(buffer.start_rollout())
    with pytest.raises(RuntimeError, match=r"get\(\) first"):
        buffer.start_rollout()


def test_adding_a_foreign_rollout_is_an_error() -> None:
    buffer = make_buffer()
    with pytest.raises(ValueError, match="start_rollout"):
        buffer.add(buffer.start_rollout().clone())


def test_transitions_leave_out_the_bootstrap_slot_and_flatten_env_by_env() -> None:
    buffer = make_buffer()
    rollout = buffer.start_rollout()
    rollout["reward"].copy_(torch.tensor([[0.0, 1, 2, 99], [10, 11, 12, 99]]))
    assert transition_view(rollout, flatten=False)["reward"].tolist() == [[0, 1, 2], [10, 11, 12]]
    assert transition_view(rollout, flatten=True)["reward"].tolist() == [0, 1, 2, 10, 11, 12]
    buffer.add(rollout)
    assert buffer.get(flatten=True)["obs"].shape == (6, 1)
    buffer.add(rollout)
    assert buffer.get(flatten=False) is rollout  # [N, T+1]


def test_unflattened_transitions_share_the_rollout_s_memory() -> None:
    rollout = make_buffer().start_rollout()
    transition_view(rollout, flatten=False)["reward"][1, 2] = 7
    assert rollout["reward"][1, 2] == 7
