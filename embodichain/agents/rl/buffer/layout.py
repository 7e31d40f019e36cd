"""The rollout's fields, declared once.

Legend: N envs, T rollout steps, O flattened observation size, A action size, S state size.

A rollout is a TensorDict of batch size [N, T+1]. Slot t < T is the t-th transition. Slot T is the observation after the
last one and its value (the bootstrap); in every other field it is padding.

Of a policy that chooses chunks of H actions, a step is a decision: ``action`` is [N, T+1, H, A], ``sample_log_prob``
[N, T+1, H, A'], ``reward`` [N, T+1, H], and ``executed`` [N, T+1, H] bool says which of them were executed: all up to
the end of an episode. ``done``, ``terminated`` and ``truncated`` are those of the chunk.

A policy may ask for more, all of it written by the collector (see ``Policy``): ``entries``, a nested TensorDict of
observation entries by name, [N, T+1, ...] each in its own dtype; ``state`` [N, T+1, S], the recurrent state before each
step; both real in slot T. And further fields, [N, T+1, width] float32 each.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    per_action: bool = False
    """Each action of a chunk has its own: [N, T+1, H] or [N, T+1, H, width]."""


ROLLOUT_FIELDS = (
    RolloutField("obs", torch.float32, "collector", "obs_dim"),
    # As sampled: the env clips, the log-prob does not.
    RolloutField("action", torch.float32, "collector", "action_dim", per_action=True),
    RolloutField("sample_log_prob", torch.float32, "collector", per_action=True),
    RolloutField("value", torch.float32, "collector"),
    RolloutField("final_value", torch.float32, "collector"),  # V(last obs of the episode) where truncated, elsewhere 0
    RolloutField("reward", torch.float32, "env", per_action=True),
    RolloutField("done", torch.bool, "env"),  # terminated | truncated
    RolloutField("terminated", torch.bool, "env"),
    RolloutField("truncated", torch.bool, "env"),
)


def allocate_rollout(
    num_envs: int,
    rollout_len: int,
    obs_dim: int,
    action_dim: int,
    device: torch.device | str,
    *,
    extra_fields: Sequence[tuple[str, int]] = (),
    state_size: int = 0,
    entries: TensorDict | None = None,
    chunk_length: int = 1,
    log_prob_size: int | None = None,
) -> TensorDict:
    """Return a zero-filled rollout of batch size [N, T+1].

    The storage is time-major ([T+1, N, ...], shown transposed): what one step writes, and what one iteration of the
    backward recursion of GAE reads, is contiguous.

    Args:
        num_envs: N.
        rollout_len: T.
        obs_dim: O.
        action_dim: A.
        device: where the rollout lives.
        extra_fields: names and widths of the policy's further fields.
        state_size: S; 0: no ``state``.
        entries: the policy's observation entries as the environment gives them, batch size [N]; None: no ``entries``.
        chunk_length: H; 1: single actions.
        log_prob_size: A', with chunks; None: A.
    """
    slots = rollout_len + 1

    def zeros(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(slots, num_envs, *shape, dtype=dtype, device=device).transpose(0, 1)

    def shape(field: RolloutField) -> tuple[int, ...]:
        width = {"obs_dim": (obs_dim,), "action_dim": (action_dim,), None: ()}[field.width]
        if chunk_length == 1 or not field.per_action:
            return width
        if field.name == "sample_log_prob":
            width = (log_prob_size or action_dim,)
        return (chunk_length, *width)

    fields: dict[str, torch.Tensor | TensorDict] = {f.name: zeros(shape(f), f.dtype) for f in ROLLOUT_FIELDS}
    if chunk_length > 1:
        fields["executed"] = zeros([chunk_length], torch.bool)
    fields |= {name: zeros([width], torch.float32) for name, width in extra_fields}
    if state_size:
        fields["state"] = zeros([state_size], torch.float32)
    if entries is not None:
        stored = {str(name): zeros(value.shape[1:], value.dtype) for name, value in entries.items()}
        fields["entries"] = TensorDict(stored, batch_size=[num_envs, slots], device=device)
    return TensorDict(fields, batch_size=[num_envs, slots], device=device)
