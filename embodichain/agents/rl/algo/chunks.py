"""Chunks of actions: the only part of ``algo`` that handles them; all else gets plain rows.

A policy may choose H actions at a time, of which the first k are executed before it chooses again. Such a decision is
one step that takes k control steps (an option: Sutton, Precup and Singh, "Between MDPs and semi-MDPs", 1999).

Legend: N envs, T decisions, A' log-probabilities of an action; ... any shape, of decisions. ``executed`` is [..., H]
bool, or None for single actions.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from tensordict import TensorDict

LogProbLevel = Literal["token", "action", "chunk"]
"""Level of the probability ratio: each of the A' entries of an action, each action, or the chunk."""


def of_chunks(rows: Mapping[str, Any], executed: torch.Tensor, level: LogProbLevel) -> dict[str, Any]:
    """Return the fields of ``Rows`` for a batch of chunks, of which ``executed`` [..., H] actions count.

    ``rows`` are the fields for [..., H, A'] log-probabilities.
    """
    log_prob, old, reference = rows["log_prob"], rows["old_log_prob"], rows["reference_log_prob"]
    counted = _counted(executed, rows["mask"])
    of_action = at_level(log_prob, executed, "action") - at_level(old, executed, "action")
    log_prob, old = at_level(log_prob, executed, level), at_level(old, executed, level)
    return {
        "log_prob": log_prob,
        "old_log_prob": old,
        "advantage": with_dims_of(log_prob, rows["advantage"]),
        "reference_log_prob": None if reference is None else at_level(reference, executed, level),
        "mask": counted.any(-1) if level == "chunk" else with_dims_of(log_prob, counted).expand_as(log_prob),
        "entropy": at_level(rows["entropy"], executed, "action"),
        "action_log_ratio": of_action,
        "action_mask": counted,
    }


def count_rows(batch: TensorDict, level: LogProbLevel) -> torch.Tensor:
    """Return the number of valid rows that ``compare`` makes of a batch with ``valid``, a scalar."""
    valid, executed = batch["valid"], batch.get("executed", None)
    if executed is None:
        return valid.sum()
    counted = _counted(executed, valid)
    if level == "action":
        return counted.sum()
    return counted.any(-1).sum() if level == "chunk" else counted.sum() * batch["sample_log_prob"].shape[-1]


def _counted(executed: torch.Tensor, valid: torch.Tensor | None) -> torch.Tensor:
    """Return the mask of executed actions in valid transitions, [..., H]."""
    return executed if valid is None else executed & with_dims_of(executed, valid)


def at_level(log_prob: torch.Tensor, executed: torch.Tensor, level: LogProbLevel) -> torch.Tensor:
    """Return log-probabilities [..., H, A'] at a level: [..., H, A'], [..., H] or [...].

    Actions that were not executed are 0: they count neither in their chunk's probability nor in a gradient.
    """
    log_prob = log_prob.masked_fill(~executed.unsqueeze(-1), 0.0)
    if level == "token":
        return log_prob
    per_action = log_prob.sum(-1)
    return per_action if level == "action" else per_action.sum(-1)


def chunk_rewards(rollout: TensorDict, gamma: float) -> tuple[torch.Tensor, float | torch.Tensor]:
    """Return the reward of each step of a rollout [N, T+1], [N, T], and the discount of the next step.

    With chunks these are R = sum_i gamma^i r_i over the executed actions i = 0 ... k-1, and gamma^k, [N, T]. Without,
    they are the rollout's rewards and gamma.
    """
    reward, executed = rollout["reward"][:, :-1], rollout.get("executed", None)
    if executed is None:
        return reward, gamma
    executed = executed[:, :-1]
    powers = gamma ** torch.arange(reward.shape[-1] + 1, dtype=torch.float32, device=reward.device)
    earned = (reward.masked_fill(~executed, 0.0) * powers[:-1]).sum(-1)
    return earned, powers[executed.sum(-1)]


def with_dims_of(like: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return x [...] with trailing dimensions of size 1, as many as ``like`` [..., more] has."""
    return x.reshape(*x.shape, *[1] * (like.dim() - x.dim()))
