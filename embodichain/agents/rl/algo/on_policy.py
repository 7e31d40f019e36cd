"""The base of the on-policy algorithms: hyperparameters, clipped surrogate, old and reference log-probabilities.

Legend: M transitions or sequences of a batch, L sequence length; ... any shape, of samples.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any

import torch
from pydantic import Field, PositiveInt
from tensordict import TensorDict

from embodichain.agents.rl.algo.base import BaseAlgorithm, BaseAlgorithmCfg
from embodichain.agents.rl.algo.chunks import LogProbLevel, of_chunks
from embodichain.agents.rl.models import Policy, action_log_prob
from embodichain.utils import configclass, logger


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
        size, rollout = f"{self.batch_size:,}", f"{rollout_steps:,} transitions of a rollout"
        line = f"{size} is more than the {rollout} (trainer.num_envs x trainer.buffer_size), which is one minibatch"
        is_more = rollout_steps < self.batch_size != AlgorithmCfg.batch_size
        return [f"algorithm.cfg.batch_size: {line}"] if is_more else []


@dataclass(frozen=True)
class Rows:
    """A batch as a loss reads it: one row per probability ratio.

    A row is a transition; with chunks of actions it is a token, an action or a chunk, by the level, while entropies and
    divergences are per action (``chunks.py``).
    """

    log_prob: torch.Tensor  # of the policy, with gradients
    old_log_prob: torch.Tensor  # of the ratio's denominator, the same shape
    advantage: torch.Tensor  # broadcasts to log_prob
    weight: torch.Tensor | float  # importance weight of each row; 1 unless an older policy collected
    reference_log_prob: torch.Tensor | None  # of the reference policy, if there is one
    mask: torch.Tensor | None  # rows that count; None: all
    entropy: torch.Tensor  # of each action, nats
    action_log_ratio: torch.Tensor  # of each action
    action_mask: torch.Tensor | None  # actions that count; None: all


def compare(batch: TensorDict, new: TensorDict, level: LogProbLevel) -> Rows:
    """Return a batch and the policy's evaluation of it as plain rows.

    Args:
        batch: [...], from ``learning_batch``, with ``advantage``; with ``valid`` if not all transitions count, and
            with ``importance_weight``, at the level, if an older policy collected.
        new: ``Policy.evaluate_actions`` of the batch.
        level: level of the probability ratio, for chunks of actions.
    """
    log_prob, old, valid = action_log_prob(new), batch["sample_log_prob"], batch.get("valid", None)
    rows = Rows(
        log_prob=log_prob,
        old_log_prob=old,
        advantage=batch["advantage"],
        weight=batch.get("importance_weight", 1.0),
        reference_log_prob=batch.get("reference_log_prob", None),
        mask=valid,
        entropy=new["entropy"],
        action_log_ratio=log_prob - old,
        action_mask=valid,
    )
    executed = batch.get("executed", None)
    return rows if executed is None else replace(rows, **of_chunks(vars(rows), executed, level))


def masked_mean(x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return the mean of x [...] where the mask [...] is True, 0 for an empty mask; without a mask, of all."""
    if mask is None:
        return x.mean()
    return x.masked_fill(~mask, 0.0).sum() / mask.sum().clamp(min=1)


def clipped_surrogate(ratio: torch.Tensor, advantages: torch.Tensor, clip_coef: float) -> torch.Tensor:
    """Return PPO's objective for each sample, to be maximised: min(r A, clip(r, 1 - c, 1 + c) A).

    Equation 7 of Schulman et al., "Proximal Policy Optimization Algorithms", 2017, with r = pi_new(a|s) / pi_old(a|s).
    """
    return torch.min(ratio * advantages, ratio.clamp(1 - clip_coef, 1 + clip_coef) * advantages)


def k3(log_ratio: torch.Tensor) -> torch.Tensor:
    """Return (r - 1) - log r for each sample, [...]: never negative, and 0 for r = 1.

    Its mean over samples of q is an unbiased estimate of KL(q || p) for r = p/q: the estimator k3 of Schulman,
    "Approximating KL Divergence" (joschu.net/blog/kl-approx.html), 2020. Its gradient is not the divergence's.
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
    """
    return (log_prob - old_log_prob).exp() * k3(reference_log_prob - log_prob)


def mean_reference_kl(rows: Rows) -> torch.Tensor:
    """Return the mean divergence from the reference, with its gradient, a scalar; see ``reference_kl``."""
    assert rows.reference_log_prob is not None
    divergence = reference_kl(rows.log_prob, rows.old_log_prob, rows.reference_log_prob)
    return masked_mean(rows.weight * divergence, rows.mask)


class OnPolicyAlgorithm(BaseAlgorithm):
    """Improves a policy from its rollouts, in epochs of shuffled minibatches."""

    cfg_class = AlgorithmCfg
    reference: Policy | None = None
    """The policy as it was at the construction of the algorithm, frozen (see ``Policy.reference``); None: not kept."""

    def __init__(self, cfg: AlgorithmCfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        actors = [module for name, module in policy.named_modules() if not name.startswith("critic")]
        if any(isinstance(module, torch.nn.Dropout) and module.p and module.training for module in actors):
            logger.log_warning(
                f"{type(self).__name__} compares log-probabilities of two passes, and with dropout each drops other "
                "units: ratios and KL divergences differ from 1 and 0 where the policy has not changed"
            )

    @torch.no_grad()
    def evaluate(self, batch: TensorDict, policy: Policy | None = None) -> TensorDict:
        """Return ``evaluate_actions`` of a policy, by default ``self.policy``, for a whole batch [M] or [M, L].

        It is evaluated one minibatch at a time.
        """
        length = batch.batch_size[1:].numel()
        pieces = batch.split(max(1, self.cfg.batch_size // length))
        policy = policy or self.policy
        return TensorDict.cat([policy.evaluate_actions(piece) for piece in pieces])

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
            own = {name: state["reference"][name] for name in self._own_state(self.reference)}
            state = state | {"reference": self.reference.state_dict() | own}
        super().load_state_dict(state)

    def _own_state(self, reference: Policy) -> dict[str, torch.Tensor]:
        """Return the state of a reference without what it shares with the policy."""
        of_policy = {id(x) for x in (*self.policy.parameters(), *self.policy.buffers())}
        shared = {name for name, x in (*reference.named_parameters(), *reference.named_buffers()) if id(x) in of_policy}
        return {name: value for name, value in reference.state_dict().items() if name not in shared}
