"""Chunks of actions: the only part of ``algo`` that handles them; all else gets plain rows.

A policy may choose H actions at a time, of which the first k are executed before it chooses again. Such a decision is
one step that takes k control steps (an option: Sutton, Precup and Singh, "Between MDPs and semi-MDPs", 1999).

Legend: N envs, T decisions, A' log-probabilities of an action; ... any shape, of decisions. ``executed`` is [..., H]
bool, or None for single actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from tensordict import TensorDict

from embodichain.agents.rl.models import action_log_prob

LogProbLevel = Literal["token", "action", "chunk"]
"""Level of the probability ratio: each of the A' entries of an action, each action, or the chunk."""


@dataclass(frozen=True)
class Rows:
    """A batch as a loss reads it: one row per probability ratio.

    Without chunks a row is a transition. With chunks it is a token, an action or a chunk, by the level; entropies and
    divergences are always per action.

    Attributes:
        log_prob: of the policy, with gradients.
        old_log_prob: of the ratio's denominator, the same shape.
        advantage: broadcasts to ``log_prob``.
        weight: importance weight of each row, the same shape; 1 unless an older policy collected.
        reference_log_prob: of the reference policy; None: there is none.
        mask: which rows count, bool of the shape of ``log_prob``; None: all.
        entropy: of each action, nats.
        action_log_ratio: log-ratio of each action, the same shape.
        action_mask: which actions count; None: all.
    """

    log_prob: torch.Tensor
    old_log_prob: torch.Tensor
    advantage: torch.Tensor
    weight: torch.Tensor | float
    reference_log_prob: torch.Tensor | None
    mask: torch.Tensor | None
    entropy: torch.Tensor
    action_log_ratio: torch.Tensor
    action_mask: torch.Tensor | None


def compare(batch: TensorDict, new: TensorDict, level: LogProbLevel) -> Rows:
    """Return a batch and the policy's evaluation of it as plain rows.

    Args:
        batch: [...], from ``learning_batch``, with ``advantage``; with ``valid`` if not all transitions count, and
            with ``importance_weight``, at the level, if an older policy collected.
        new: ``Policy.evaluate_actions`` of the batch.
        level: of the probability ratio.
    """
    log_prob, old, entropy = action_log_prob(new), batch["sample_log_prob"], new["entropy"]
    reference, weight = batch.get("reference_log_prob", None), batch.get("importance_weight", 1.0)
    executed, counted, advantage = batch.get("executed", None), _counted(batch), batch["advantage"]
    if executed is None:
        return Rows(log_prob, old, advantage, weight, reference, counted, entropy, log_prob - old, counted)
    assert counted is not None
    of_action = at_level(log_prob, executed, "action") - at_level(old, executed, "action")
    log_prob, old = at_level(log_prob, executed, level), at_level(old, executed, level)
    return Rows(
        log_prob=log_prob,
        old_log_prob=old,
        advantage=with_dims_of(log_prob, advantage),
        weight=weight,
        reference_log_prob=None if reference is None else at_level(reference, executed, level),
        mask=counted.any(-1) if level == "chunk" else with_dims_of(log_prob, counted).expand_as(log_prob),
        entropy=at_level(entropy, executed, "action"),
        action_log_ratio=of_action,
        action_mask=counted,
    )


def count_rows(batch: TensorDict, level: LogProbLevel) -> torch.Tensor:
    """Return the number of valid rows that ``compare`` makes of a batch with ``valid``, a scalar."""
    counted = _counted(batch)
    assert counted is not None
    if batch.get("executed", None) is None or level == "action":
        return counted.sum()
    return counted.any(-1).sum() if level == "chunk" else counted.sum() * batch["sample_log_prob"].shape[-1]


def _counted(batch: TensorDict) -> torch.Tensor | None:
    """Return the mask of executed actions in valid transitions; None: all count."""
    executed, valid = batch.get("executed", None), batch.get("valid", None)
    if executed is None or valid is None:
        return valid if executed is None else executed
    counted: torch.Tensor = executed & with_dims_of(executed, valid)
    return counted


def at_level(log_prob: torch.Tensor, executed: torch.Tensor | None, level: LogProbLevel) -> torch.Tensor:
    """Return log-probabilities [..., H, A'] at a level: [..., H, A'], [..., H] or [...].

    Actions that were not executed are 0: they count neither in their chunk's probability nor in a gradient.
    """
    if executed is None:
        return log_prob
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


def masked_mean(x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return the mean of x [...] where the mask [...] is True, 0 for an empty mask; without a mask, of all."""
    if mask is None:
        return x.mean()
    return x.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)


def with_dims_of(like: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return x [...] with trailing dimensions of size 1, as many as ``like`` [..., more] has."""
    return x.reshape(*x.shape, *[1] * (like.dim() - x.dim()))
