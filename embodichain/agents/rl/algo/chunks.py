"""Chunks of actions in the algorithms' maths. Without chunks all of this returns what it is given.

Legend: H actions of a chunk, of which the first k are executed, A' log-probabilities of an action; ... any shape, of
decisions. What is executed is [..., H] bool, or None where a policy chooses single actions.
"""

from __future__ import annotations

from typing import Literal

import torch
from tensordict import TensorDict

__all__ = [
    "LogProbLevel",
    "at_level",
    "chunk_rewards",
    "log_ratio_at",
    "mask_at_level",
    "masked_or_mean",
    "with_dims_of",
]

LogProbLevel = Literal["token", "action", "chunk"]
"""What has a probability ratio of its own: each of the A' entries of an action, each action, or the chunk."""


def chunk_rewards(rollout: TensorDict, gamma: float) -> tuple[torch.Tensor, float | torch.Tensor]:
    """Return what each decision of a rollout [N, T+1] earns, [N, T], and how it discounts what follows.

    With chunks that is R = sum_i gamma^i r_i over the executed steps i = 0 ... k-1, and gamma^k, [N, T]: the returns of
    an option that takes k steps (Sutton, Precup and Singh, "Between MDPs and semi-MDPs", 1999). Without, it is the
    reward and gamma.

    Args:
        rollout: has ``reward`` and, with chunks, ``executed``.
        gamma: discount per step.
    """
    reward, executed = rollout["reward"][:, :-1], rollout.get("executed", None)
    if executed is None:
        return reward, gamma
    executed = executed[:, :-1]
    powers = gamma ** torch.arange(reward.shape[-1] + 1, dtype=torch.float32, device=reward.device)
    earned = (reward.masked_fill(~executed, 0.0) * powers[:-1]).sum(-1)
    return earned, powers[executed.sum(-1)]


def at_level(log_prob: torch.Tensor, executed: torch.Tensor | None, level: LogProbLevel) -> torch.Tensor:
    """Return log-probabilities [..., H, A'] at a level: [..., H, A'], [..., H] or [...]; 0 where nothing was executed.

    An action that was not executed has no part in anything: neither in its chunk's probability nor in a gradient.
    """
    if executed is None:
        return log_prob
    log_prob = log_prob.masked_fill(~executed.unsqueeze(-1), 0.0)
    if level == "token":
        return log_prob
    per_action = log_prob.sum(-1)
    return per_action if level == "action" else per_action.sum(-1)


def log_ratio_at(
    new: torch.Tensor, old: torch.Tensor, executed: torch.Tensor | None, level: LogProbLevel
) -> torch.Tensor:
    """Return the log-ratio of two policies' log-probabilities of the same actions at a level; see ``at_level``."""
    return at_level(new, executed, level) - at_level(old, executed, level)


def mask_at_level(
    executed: torch.Tensor | None, like: torch.Tensor, valid: torch.Tensor | None = None
) -> torch.Tensor | None:
    """Return which entries of ``like``, from ``at_level``, count, in its shape; None: all.

    Args:
        executed: as above.
        like: at any level.
        valid: [...] bool, which decisions count; None: all.
    """
    mask = None if valid is None else with_dims_of(like, valid)
    if executed is not None:
        chosen = executed.any(-1) if like.dim() < executed.dim() else with_dims_of(like, executed)
        mask = chosen if mask is None else mask & chosen
    return None if mask is None else mask.expand_as(like)


def masked_or_mean(x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return the mean of x [...] where the mask [...] is True, 0 where it is nowhere; without a mask, of all."""
    if mask is None:
        return x.mean()
    return x.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)


def with_dims_of(like: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return x [...] with as many dimensions as ``like`` [..., more], those that it lacks of size 1."""
    return x.reshape(*x.shape, *[1] * (like.dim() - x.dim()))
