"""Legend: N envs, T rollout steps, O flattened observation size, A action size."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer import allocate_rollout


def test_fields_have_the_documented_shapes_and_dtypes() -> None:
    rollout = allocate_rollout(num_envs=2, rollout_len=3, obs_dim=5, action_dim=4, device="cpu")
    assert rollout.batch_size == (2, 4)  # [N, T+1]
    assert {name: (tuple(x.shape[2:]), x.dtype) for name, x in rollout.items()} == {
        "obs": ((5,), torch.float32),
        "action": ((4,), torch.float32),
        "sample_log_prob": ((), torch.float32),
        "value": ((), torch.float32),
        "final_value": ((), torch.float32),
        "reward": ((), torch.float32),
        "done": ((), torch.bool),
        "terminated": ((), torch.bool),
        "truncated": ((), torch.bool),
    }


def test_policy_s_fields_are_added_as_asked_for() -> None:
    entries = TensorDict({"cam/color": torch.zeros(2, 4, 4, 3, dtype=torch.uint8)}, batch_size=[2])
    rollout = allocate_rollout(2, 3, 5, 4, "cpu", extra_fields=[("raw_action", 4)], state_size=6, entries=entries)
    assert rollout["raw_action"].shape == (2, 4, 4)
    assert rollout["state"].shape == (2, 4, 6)
    assert rollout["entries"].batch_size == (2, 4)
    assert rollout["entries"]["cam/color"].shape == (2, 4, 4, 4, 3)
    assert rollout["entries"]["cam/color"].dtype == torch.uint8


def test_slice_of_one_step_is_contiguous_in_every_field() -> None:
    rollout = allocate_rollout(num_envs=2, rollout_len=3, obs_dim=5, action_dim=4, device="cpu")
    assert all(x[:, 1].is_contiguous() for x in rollout.values())
