"""Proximal policy optimisation.

Legend: N envs, T rollout steps, B minibatch, L sequence length.
"""

from __future__ import annotations

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo.base import AlgorithmCfg, BaseAlgorithm
from embodichain.agents.rl.algo.common import (
    approx_kl,
    clipped_surrogate,
    compute_gae,
    explained_variance,
    normalize_advantages,
)
from embodichain.agents.rl.algo.registry import register_algo
from embodichain.agents.rl.buffer import iterate_minibatches, learning_batch
from embodichain.agents.rl.models import Policy
from embodichain.utils import configclass

__all__ = ["PPO", "PPOCfg"]


@configclass
class PPOCfg(AlgorithmCfg):
    """Settings of PPO."""

    clip_coef: PositiveFloat = 0.2
    """How far the probability ratio may leave 1 before a sample stops pushing it further."""
    ent_coef: NonNegativeFloat = 0.0
    """Weight of the entropy bonus."""
    vf_coef: NonNegativeFloat = 0.5
    """Weight of the value loss."""


@register_algo("ppo")
class PPO(BaseAlgorithm):
    """Clipped PPO (Schulman et al., "Proximal Policy Optimization Algorithms", 2017) with generalised advantages.

    Each update makes ``n_epochs`` passes over the rollout in shuffled minibatches, and descends

        - mean min(r A, clip(r) A)  +  vf_coef * mean (V - return)^2 / 2  -  ent_coef * mean entropy

    with Adam (eps 1e-5, as in OpenAI Baselines). Advantages A are normalised over the whole rollout.

    Args:
        cfg: the settings.
        policy: the policy to improve, on ``cfg.device``.
    """

    cfg_class = PPOCfg

    def __init__(self, cfg: PPOCfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        self.cfg = cfg
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=cfg.learning_rate, eps=1e-5)

    def update(self, rollout: TensorDict) -> dict[str, float]:
        """Improve the policy; see ``BaseAlgorithm.update``.

        Returns:
            Means over the minibatches of ``policy_loss``, ``value_loss``, ``entropy`` (nats), ``approx_kl``,
            ``clip_fraction`` (share of samples whose ratio left the clip range) and ``grad_norm`` (before it is cut);
            ``explained_variance`` of the returns by the values that the rollout was collected with; ``learning_rate``;
            and the policy's diagnostics after the update, such as ``std``.
        """
        cfg = self.cfg
        rollout = rollout.to(self.device)
        advantages, returns = compute_gae(rollout, cfg.gamma, cfg.gae_lambda)
        columns = {"advantage": normalize_advantages(advantages), "return": returns}
        batch = learning_batch(rollout, self.policy, **columns)

        sums: dict[str, torch.Tensor] = {}
        num_minibatches = 0
        for _ in range(cfg.n_epochs):
            for minibatch in iterate_minibatches(batch, cfg.batch_size, self.device):
                for name, value in self._step(minibatch).items():
                    sums[name] = sums[name] + value if name in sums else value
                num_minibatches += 1

        metrics = {name: total / num_minibatches for name, total in sums.items()}
        metrics["explained_variance"] = explained_variance(rollout["value"][:, :-1], returns)
        metrics |= self.policy.diagnostics()
        # One transfer for all: reading them where they arise would wait for the device at every minibatch.
        values = torch.stack(list(metrics.values())).tolist()
        return {
            **dict(zip(metrics, values, strict=True)),
            "learning_rate": self.optimizer.param_groups[0]["lr"],
        }

    def loss(self, batch: TensorDict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss to descend and, detached, the scalars to log.

        Args:
            batch: [B], or [B, L] sequences: from ``learning_batch``, with ``advantage`` and ``return``.
        """
        cfg = self.cfg
        new = self.policy.evaluate_actions(batch)
        log_ratio = new["sample_log_prob"] - batch["sample_log_prob"]
        ratio = log_ratio.exp()
        policy_loss = -clipped_surrogate(ratio, batch["advantage"], cfg.clip_coef).mean()
        value_loss = 0.5 * (new["value"] - batch["return"]).square().mean()
        entropy = new["entropy"].mean()
        loss = policy_loss + cfg.vf_coef * value_loss - cfg.ent_coef * entropy
        with torch.no_grad():
            metrics = {
                "policy_loss": policy_loss.detach(),
                "value_loss": value_loss.detach(),
                "entropy": entropy.detach(),
                "approx_kl": approx_kl(log_ratio),
                "clip_fraction": ((ratio - 1).abs() > cfg.clip_coef).float().mean(),
            }
        return loss, metrics

    def _step(self, minibatch: TensorDict) -> dict[str, torch.Tensor]:
        loss, metrics = self.loss(minibatch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        metrics["grad_norm"] = nn.utils.clip_grad_norm_(self.policy.parameters(), self.cfg.max_grad_norm)
        self.optimizer.step()
        return metrics
