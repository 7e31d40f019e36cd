"""What the algorithms that learn from rollouts have in common: settings, the clipped surrogate, old log-probabilities.

Legend: M transitions or sequences of a batch, L sequence length; ... any shape, of samples.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field, PositiveInt
from tensordict import TensorDict

from embodichain.agents.rl.algo.base import BaseAlgorithm, BaseAlgorithmCfg
from embodichain.agents.rl.algo.macro_steps import LogProbLevel, with_dims_of
from embodichain.agents.rl.models import Policy, action_log_prob
from embodichain.utils import configclass

__all__ = ["AlgorithmCfg", "OnPolicyAlgorithm", "clipped_surrogate", "k3", "rounded_log_prob", "where_behind"]


@configclass
class AlgorithmCfg(BaseAlgorithmCfg):
    """Settings that the on-policy algorithms share."""

    n_epochs: PositiveInt = 10
    """Passes over each rollout."""
    batch_size: PositiveInt = 2048
    """Transitions per minibatch, in each of several processes; the last one of an epoch holds the remainder. Left
    out, it is a whole rollout where that has fewer."""
    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Weight of longer returns in the advantage: 0 is the one-step error, 1 the whole return."""
    logprob_level: LogProbLevel = "action"
    """Of policies that choose chunks of actions: what has a probability ratio of its own. Each entry of an action that
    the policy tells apart (``"token"``), each action, or the whole chunk; what was not executed never counts."""

    def check_run(self, num_envs: int, buffer_size: int) -> list[str]:
        """Return what makes these settings impossible for rollouts of so many environments and steps, a line each."""
        transitions = num_envs * buffer_size
        # The default is an upper limit: a small rollout makes one minibatch, and nobody has to write a size for it.
        if self.batch_size <= transitions or self.batch_size == AlgorithmCfg.batch_size:
            return []
        return [
            f"algorithm.cfg.batch_size: {self.batch_size} is more than a rollout has: {num_envs} environments "
            f"(trainer.num_envs) x {buffer_size} steps (trainer.buffer_size) = {transitions}"
        ]


def clipped_surrogate(ratio: torch.Tensor, advantages: torch.Tensor, clip_coef: float) -> torch.Tensor:
    """Return PPO's objective for each sample, to be maximised: min(r A, clip(r, 1 - c, 1 + c) A).

    Equation 7 of Schulman et al., "Proximal Policy Optimization Algorithms", 2017.

    Args:
        ratio: r = pi_new(a|s) / pi_old(a|s), [...].
        advantages: A, [...].
        clip_coef: c.
    """
    return torch.min(ratio * advantages, ratio.clamp(1 - clip_coef, 1 + clip_coef) * advantages)


def k3(log_ratio: torch.Tensor) -> torch.Tensor:
    """Return (r - 1) - log r for each sample, [...]: never negative, and 0 where nothing changed.

    Its mean over samples of q is an unbiased estimate of KL(q || p) for r = p/q: the estimator k3 of Schulman,
    "Approximating KL Divergence" (joschu.net/blog/kl-approx.html), 2020. Its gradient is not that of the divergence.

    Args:
        log_ratio: log r, [...].
    """
    return log_ratio.expm1() - log_ratio


def where_behind(batch: TensorDict, behind: torch.Tensor, current: torch.Tensor) -> torch.Tensor:
    """Return ``behind`` [M, ...] for samples that an older policy collected (``lag`` > 0), else ``current``."""
    lag = batch.get("lag", None)
    return current if lag is None else torch.where(with_dims_of(current, lag) > 0, behind, current)


def rounded_log_prob(batch: TensorDict, now: TensorDict) -> torch.Tensor:
    """Return the log-probabilities that ratios are taken to where the update rounds: the policy's own, rounded too.

    That of an older policy stays as it was stored: the parameters that it came from are gone.

    Args:
        batch: from ``learning_batch``, with ``lag`` where samples may be an older policy's.
        now: the policy's evaluation of the batch.
    """
    return where_behind(batch, batch["sample_log_prob"], action_log_prob(now))


class OnPolicyAlgorithm(BaseAlgorithm):
    """Improves a policy from rollouts of its own, in epochs of shuffled minibatches."""

    cfg_class = AlgorithmCfg

    @torch.no_grad()
    def evaluate(self, batch: TensorDict, policy: Policy | None = None) -> TensorDict:
        """Return what ``evaluate_actions`` of a policy, by default the one to improve, says of a whole batch.

        Args:
            batch: [M] or [M, L], from ``learning_batch``; it is evaluated a minibatch at a time.
            policy: the policy.
        """
        length = batch.batch_size[1:].numel()
        pieces = batch.split(max(1, self.cfg.batch_size // length))
        policy = policy or self.policy
        return TensorDict.cat([policy.evaluate_actions(piece) for piece in pieces])

    @property
    def is_rounded(self) -> bool:
        """Whether products of matrices are rounded to less than the float32 that rollouts are collected in.

        The ratio to the rollout's log-probability would then not be 1 before the first step, the less so the smaller
        the std: an update first evaluates its batch again; see ``rounded_log_prob``.
        """
        return torch.is_autocast_enabled(self.device.type)
