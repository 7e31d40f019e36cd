"""The base of the on-policy algorithms: hyperparameters, clipped surrogate, old and reference log-probabilities.

Legend: M transitions or sequences of a batch, L sequence length; ... any shape, of samples.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field, PositiveInt
from tensordict import TensorDict

from embodichain.agents.rl.algo.base import BaseAlgorithm, BaseAlgorithmCfg
from embodichain.agents.rl.algo.macro_steps import LogProbLevel, Rows, masked_mean, with_dims_of
from embodichain.agents.rl.models import Policy, action_log_prob
from embodichain.utils import configclass


@configclass
class AlgorithmCfg(BaseAlgorithmCfg):
    """Hyperparameters of the on-policy algorithms."""

    n_epochs: PositiveInt = 10
    """Passes over each rollout."""
    batch_size: PositiveInt = 2048
    """Transitions per minibatch, in each of several processes; the last one of an epoch has the remainder. At most a
    whole rollout."""
    gae_lambda: Annotated[float, Field(ge=0, le=1)] = 0.95
    """Weight of longer returns in the advantage: 0 is the one-step error, 1 the whole return."""
    logprob_level: LogProbLevel = "action"
    """For policies that choose chunks of actions, the level of the probability ratio: each entry of an action that has
    a log-probability (``"token"``), each action, or the whole chunk. Only executed actions count."""

    def notices(self, rollout_steps: int, env_steps: int) -> list[str]:
        """Return what has no effect; see ``BaseAlgorithmCfg.notices``."""
        if self.batch_size <= rollout_steps or self.batch_size == AlgorithmCfg.batch_size:
            return []
        return [
            f"algorithm.cfg.batch_size: {self.batch_size:,} is more than the {rollout_steps:,} transitions of a "
            "rollout (trainer.num_envs x trainer.buffer_size), which is one minibatch"
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
    """Return (r - 1) - log r for each sample, [...]: never negative, and 0 for r = 1.

    Its mean over samples of q is an unbiased estimate of KL(q || p) for r = p/q: the estimator k3 of Schulman,
    "Approximating KL Divergence" (joschu.net/blog/kl-approx.html), 2020. Its gradient is not that of the divergence.

    Args:
        log_ratio: log r, [...].
    """
    return log_ratio.expm1() - log_ratio


def reference_kl(log_prob: torch.Tensor, old_log_prob: torch.Tensor, reference_log_prob: torch.Tensor) -> torch.Tensor:
    """Return, for each sample of the old policy, an estimate of KL(pi || ref) with the right gradient: [...].

    With rho = pi/old and r = ref/pi it is rho (r - 1 - log r). The weight rho turns the mean over samples of old into
    that over pi: E_old[rho (r - 1 - log r)] = E_pi[r - 1 - log r] = KL(pi || ref), since E_pi[r] = 1. This holds for
    every pi, so the derivatives agree:

        grad rho (r - 1 - log r) = rho grad log pi [(r - 1 - log r) + (1 - r)] = rho grad log pi log(pi / ref),

    whose mean is the gradient of KL(pi || ref). Without rho, or with rho held constant, as is often seen, the middle
    term (1 - r) grad log pi is left alone, and its mean is the gradient of KL(ref || pi), a different divergence.

    Args:
        log_prob: log pi(a|s), with gradients, [...].
        old_log_prob: log old(a|s), [...].
        reference_log_prob: log ref(a|s), [...].
    """
    return (log_prob - old_log_prob).exp() * k3(reference_log_prob - log_prob)


def mean_reference_kl(rows: Rows) -> torch.Tensor:
    """Return the mean divergence from the reference, with its gradient, a scalar; see ``reference_kl``."""
    assert rows.reference_log_prob is not None
    divergence = reference_kl(rows.log_prob, rows.old_log_prob, rows.reference_log_prob)
    return masked_mean(rows.weight * divergence, rows.mask)


def where_behind(batch: TensorDict, behind: torch.Tensor, current: torch.Tensor) -> torch.Tensor:
    """Return ``behind`` [M, ...] for samples that an older policy collected (``lag`` > 0), else ``current``."""
    lag = batch.get("lag", None)
    return current if lag is None else torch.where(with_dims_of(current, lag) > 0, behind, current)


def rounded_log_prob(batch: TensorDict, now: TensorDict) -> torch.Tensor:
    """Return the old log-probabilities of an update that rounds: of ``now``, the policy's evaluation of the batch.

    Samples of an older policy (``lag`` > 0) have the stored ones, as its parameters are gone.
    """
    return where_behind(batch, batch["sample_log_prob"], action_log_prob(now))


class OnPolicyAlgorithm(BaseAlgorithm):
    """Improves a policy from its rollouts, in epochs of shuffled minibatches."""

    cfg_class = AlgorithmCfg
    reference: Policy | None = None
    """The policy as it was at the construction of the algorithm, frozen, for a KL divergence from it; None: not kept.

    Its input statistics are the policy's current ones, see ``Policy.reference``."""

    @torch.no_grad()
    def evaluate(self, batch: TensorDict, policy: Policy | None = None) -> TensorDict:
        """Return ``evaluate_actions`` of a policy, by default ``self.policy``, for a whole batch [M] or [M, L].

        It is evaluated one minibatch at a time.
        """
        length = batch.batch_size[1:].numel()
        pieces = batch.split(max(1, self.cfg.batch_size // length))
        policy = policy or self.policy
        return TensorDict.cat([policy.evaluate_actions(piece) for piece in pieces])

    @property
    def is_rounded(self) -> bool:
        """Whether updates compute in lower precision than the float32 of rollouts.

        The ratio to the rollout's log-probability is then not 1 before the first step, least of all with a small std:
        an update first evaluates its batch again; see ``rounded_log_prob``.
        """
        return torch.is_autocast_enabled(self.device.type)

    def add_reference(self, batch: TensorDict) -> None:
        """Set ``reference_log_prob`` of a batch [M, ...], if there is a reference."""
        if self.reference is not None:
            batch["reference_log_prob"] = action_log_prob(self.evaluate(batch, self.reference))

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state and, with a reference, its own state."""
        state = super().state_dict()
        return state if self.reference is None else state | {"reference": self._own_state(self.reference)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what ``state_dict`` returned."""
        if self.reference is not None:
            # Older checkpoints also have the statistics at the reference's creation; they are ignored.
            own = {name: state["reference"][name] for name in self._own_state(self.reference)}
            state = state | {"reference": self.reference.state_dict() | own}
        super().load_state_dict(state)

    def _own_state(self, reference: Policy) -> dict[str, torch.Tensor]:
        """Return the state of a reference without the buffers that it shares with the policy."""
        of_policy = {id(x) for x in self.policy.buffers()}
        shared = {name for name, x in reference.named_buffers() if id(x) in of_policy}
        return {name: value for name, value in reference.state_dict().items() if name not in shared}
