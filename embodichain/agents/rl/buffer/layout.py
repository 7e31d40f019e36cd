"""The rollout's fields, declared once.

Legend: N envs, T rollout steps, O flattened observation size, A action size.

A rollout is a TensorDict of batch size [N, T+1]. Slot t < T is the t-th transition. Slot T is the observation after the
last one and its value (the bootstrap); in every other field it is padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from tensordict import TensorDict

__all__ = ["ROLLOUT_FIELDS", "RolloutField", "allocate_rollout"]


@dataclass(frozen=True)
class RolloutField:
    """One tensor of a rollout, [N, T+1] or, with a width, [N, T+1, width]."""

    name: str
    dtype: torch.dtype
    writer: Literal["collector", "env"]
    width: Literal["obs_dim", "action_dim"] | None = None


ROLLOUT_FIELDS = (
    RolloutField("obs", torch.float32, "collector", "obs_dim"),
    RolloutField(
        "action", torch.float32, "collector", "action_dim"
    ),  # as sampled: the env clips, the log-prob does not
    RolloutField("sample_log_prob", torch.float32, "collector"),
    RolloutField("value", torch.float32, "collector"),
    RolloutField("final_value", torch.float32, "collector"),  # V(last obs of the episode) where truncated, elsewhere 0
    RolloutField("reward", torch.float32, "env"),
    RolloutField("done", torch.bool, "env"),  # terminated | truncated
    RolloutField("terminated", torch.bool, "env"),
    RolloutField("truncated", torch.bool, "env"),
)


def allocate_rollout(
    num_envs: int, rollout_len: int, obs_dim: int, action_dim: int, device: torch.device | str
) -> TensorDict:
    """Return a zero-filled rollout of batch size [N, T+1].

    The storage is time-major ([T+1, N, ...], shown transposed): what one step writes, and what one iteration of the
    backward recursion of GAE reads, is contiguous.
    """
    widths = {"obs_dim": (obs_dim,), "action_dim": (action_dim,), None: ()}
    slots = rollout_len + 1
    fields = {
        f.name: torch.zeros(slots, num_envs, *widths[f.width], dtype=f.dtype, device=device).transpose(0, 1)
        for f in ROLLOUT_FIELDS
    }
    return TensorDict(fields, batch_size=[num_envs, slots], device=device)
