"""Proximal policy optimisation.

Legend: N envs, T rollout steps, B minibatch, L sequence length.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from tensordict import TensorDict

from embodichain.agents.rl.algo.base import AlgorithmCfg, BaseAlgorithm
from embodichain.agents.rl.algo.chunks import at_level, log_ratio_at, mask_at_level, masked_or_mean, with_dims_of
from embodichain.agents.rl.algo.common import (
    adapted_learning_rate,
    behaviour_weight,
    clipped_surrogate,
    clipped_value_error,
    compute_gae,
    explained_variance,
    gaussian_kl,
    k3,
    normalize_advantages,
)
from embodichain.agents.rl.algo.registry import register_algo
from embodichain.agents.rl.algo.updates import (
    MetricMeans,
    evaluate_batch,
    gradient_step,
    is_rounded,
    rounded_log_prob,
)
from embodichain.agents.rl.buffer import check_rollout, iterate_minibatches, learning_batch
from embodichain.agents.rl.distributed import get_ranks
from embodichain.agents.rl.models import Policy, action_log_prob
from embodichain.utils import ConfigError, configclass

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
    lr_schedule: Literal["constant", "linear", "adaptive"] = "constant"
    """What becomes of ``learning_rate``: it stays, it falls to 0 over the training, or it follows ``desired_kl``."""
    desired_kl: PositiveFloat = 0.01
    """For ``"adaptive"``: the KL divergence (nats an action) from the rollout's policy that an update should reach."""
    max_kl: PositiveFloat | None = None
    """An epoch whose mean approximate KL divergence (nats an action) exceeds this is the update's last; None: never."""
    clip_value_coef: PositiveFloat | None = None
    """How far a value may move in an update before its error stops counting, in units of the return: it depends on the
    rewards' scale. None: as far as it likes."""
    normalize_advantages: Literal["rollout", "minibatch", "none"] = "rollout"
    """What advantages are normalised over to mean 0 and deviation 1."""
    decoupled: bool = True
    """Correct for the age of a policy that collected asynchronously; without a meaning where none is behind."""
    behaviour_weight_cap: PositiveFloat = 5.0
    """The most that such a sample may weigh."""


@register_algo("ppo")
class PPO(BaseAlgorithm):
    """Clipped PPO (Schulman et al., "Proximal Policy Optimization Algorithms", 2017) with generalised advantages.

    Each update makes ``n_epochs`` passes over the rollout in shuffled minibatches, and descends

        - mean min(r A, clip(r) A)  +  vf_coef * mean (V - return)^2 / 2  -  ent_coef * mean entropy

    with Adam (eps 1e-5, as in OpenAI Baselines).

    ``lr_schedule: "adaptive"`` corrects the learning rate before each gradient step but an update's first, by the exact
    KL divergence of Gaussians (see ``adapted_learning_rate``). ``max_kl`` ends an update early, as Spinning Up (2018)
    and Stable-Baselines3 do; here the host reads the divergence once an epoch, so that no minibatch waits for it.

    Of a rollout that older policies collected (``lag`` > 0, see ``AsyncCollector``) the objective is the decoupled one:
    r is the ratio to the policy before the update, and each sample weighs what that policy's probability is to the
    older one's (see ``behaviour_weight``). Where nothing is behind, the two are the same.

    Of a policy that chooses chunks of actions, ``logprob_level`` says what has a ratio r of its own; the advantage is
    the decision's, and the means of r and of the entropy (nats of an action) are over what was executed. Where several
    processes share the training, each one's mean counts alike.

    Args:
        cfg: the settings.
        policy: the policy to improve, on ``cfg.device``.
    """

    cfg_class = PPOCfg
    cfg: PPOCfg

    def __init__(self, cfg: PPOCfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        self._adapts = cfg.lr_schedule == "adaptive"
        # The adapted rate is a tensor, which nobody waits for. Of Adam's forms the fused one takes it everywhere, skips
        # a step without anybody waiting, and needs a quarter of the others' time for networks of 64 units.
        rate = torch.tensor(cfg.learning_rate, device=self.device) if self._adapts else cfg.learning_rate
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=rate, eps=1e-5, fused=True)

    def update(self, rollout: TensorDict) -> dict[str, float]:
        """Improve the policy; see ``BaseAlgorithm.update``.

        Returns:
            Means over the minibatches, but for those whose step was skipped, of ``policy_loss``, ``value_loss``,
            ``entropy``, ``approx_kl`` (nats an action), ``clip_fraction`` (share of samples whose ratio left the clip
            range), ``grad_norm`` (before it is cut) and, where the rate adapts, ``kl``, and where samples are weighted,
            ``behaviour_weight`` and ``capped_fraction``; ``explained_variance`` of the returns by the values that the
            rollout was collected with; ``epochs``, how many were made; ``learning_rate``, the last one; and the
            policy's diagnostics after the update, such as ``std``.

        Raises:
            ValueError: the rollout is not of batch size [N, T+1].
            ConfigError: the rate is to adapt, and the policy does not say its distribution.
        """
        cfg = self.cfg
        check_rollout(rollout)
        rollout = rollout.to(self.device)
        if cfg.lr_schedule == "linear":
            self.optimizer.param_groups[0]["lr"] = cfg.learning_rate * (1 - self.progress)
        batch, explained = self._prepare(rollout)

        means = MetricMeans()
        for epoch in range(cfg.n_epochs):
            kls: list[torch.Tensor] = []
            for minibatch in iterate_minibatches(batch, cfg.batch_size, self.device):
                metrics = self._step(minibatch, adapts=self._adapts and bool(epoch or kls))
                means.add(metrics)
                kls.append(metrics["approx_kl"])
            if cfg.max_kl is not None and get_ranks().mean(_finite_mean(kls)) > cfg.max_kl:
                break
        scalars = means.read(explained_variance=explained, **self.policy.diagnostics())
        return scalars | {"epochs": float(epoch + 1), "learning_rate": float(self.optimizer.param_groups[0]["lr"])}

    def loss(self, batch: TensorDict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss to descend and, detached, the scalars to log.

        Args:
            batch: [B], or [B, L] sequences: from ``learning_batch``, with ``advantage`` and ``return``; with
                ``old_value`` for value clipping, ``old_mean`` and ``old_log_std`` for an adaptive learning rate, and
                ``behaviour_weight`` where the samples are an older policy's; ``sample_log_prob`` is the proximal one's.
        """
        cfg = self.cfg
        new = self.policy.evaluate_actions(batch)
        executed, level = batch.get("executed", None), cfg.logprob_level
        log_probs = action_log_prob(new), batch["sample_log_prob"]
        log_ratio = log_ratio_at(*log_probs, executed, level)
        mask = mask_at_level(executed, log_ratio)
        ratio = log_ratio.exp()
        advantage = batch["advantage"]
        if cfg.normalize_advantages == "minibatch":
            advantage = normalize_advantages(advantage)
        objective = clipped_surrogate(ratio, with_dims_of(ratio, advantage), cfg.clip_coef)
        weight = batch.get("behaviour_weight", None)
        policy_loss = -masked_or_mean(objective if weight is None else weight * objective, mask)
        if cfg.clip_value_coef is None:
            errors = (new["value"] - batch["return"]).square()
        else:
            errors = clipped_value_error(new["value"], batch["old_value"], batch["return"], cfg.clip_value_coef)
        value_loss = 0.5 * errors.mean()
        entropy = masked_or_mean(at_level(new["entropy"], executed, "action"), executed)
        loss = policy_loss + cfg.vf_coef * value_loss
        if cfg.ent_coef > 0:
            loss = loss - cfg.ent_coef * entropy
        with torch.no_grad():
            metrics = {
                "policy_loss": policy_loss.detach(),
                "value_loss": value_loss.detach(),
                "entropy": entropy.detach(),
                "approx_kl": masked_or_mean(k3(log_ratio_at(*log_probs, executed, "action")), executed),
                "clip_fraction": masked_or_mean(((ratio - 1).abs() > cfg.clip_coef).float(), mask),
            }
            if self._adapts:
                kl = gaussian_kl(batch["old_mean"], batch["old_log_std"], new["mean"], new["log_std"])
                metrics["kl"] = get_ranks().mean(masked_or_mean(kl, executed))
            if weight is not None:
                metrics["behaviour_weight"] = masked_or_mean(weight, mask)
                metrics["capped_fraction"] = masked_or_mean((weight >= cfg.behaviour_weight_cap).float(), mask)
        return loss, metrics

    def _prepare(self, rollout: TensorDict) -> tuple[TensorDict, torch.Tensor]:
        """Return the batch to learn from, and how much of the returns' variance the old values explain."""
        cfg, old_value = self.cfg, rollout["value"][:, :-1]
        advantages, returns = compute_gae(rollout, cfg.gamma, cfg.gae_lambda)
        if cfg.normalize_advantages == "rollout":
            advantages = normalize_advantages(advantages)
        columns = {"advantage": advantages, "return": returns}
        if cfg.clip_value_coef is not None:
            columns["old_value"] = old_value
        lag = rollout.get("lag", None)
        is_behind = lag is not None and bool((lag[:, :-1] > 0).any())
        if is_behind:
            columns["lag"] = lag[:, :-1]
        batch = learning_batch(rollout, self.policy, **columns)
        weighs, rounded = cfg.decoupled and is_behind, is_rounded(self.device)
        old = evaluate_batch(self.policy, batch, cfg.batch_size) if self._adapts or weighs or rounded else batch
        behaviour = batch["sample_log_prob"]
        if weighs:
            with torch.autocast(self.device.type, enabled=False):  # the weight is for the age alone
                exact = evaluate_batch(self.policy, batch, cfg.batch_size) if rounded else old
            # What was collected with the present parameters keeps its log-probability, to the last bit.
            proximal = torch.where(with_dims_of(behaviour, batch["lag"]) > 0, action_log_prob(exact), behaviour)
            executed = batch.get("executed", None)
            new, older = (at_level(x, executed, cfg.logprob_level) for x in (proximal, behaviour))
            batch["behaviour_weight"] = behaviour_weight(new, older, cfg.behaviour_weight_cap)
            batch["sample_log_prob"] = proximal
        if rounded:
            batch["sample_log_prob"] = action_log_prob(old) if weighs else rounded_log_prob(batch, old)
            if cfg.clip_value_coef is not None:
                batch["old_value"] = old["value"]
        if self._adapts:
            for name in ("mean", "log_std"):
                if name not in old.keys():  # noqa: SIM118 (a TensorDict, not a dict)
                    raise ConfigError(
                        f"algorithm.cfg.lr_schedule: 'adaptive' needs a Gaussian policy, whose evaluate_actions "
                        f"returns 'mean' and 'log_std'; that of {type(self.policy).__name__} returns no '{name}'"
                    )
                batch[f"old_{name}"] = old[name]
        return batch, explained_variance(old_value, returns)

    def _step(self, minibatch: TensorDict, adapts: bool) -> dict[str, torch.Tensor]:
        """Make one gradient step; ``adapts`` says whether the learning rate follows the KL divergence before it."""
        loss, metrics = self.loss(minibatch)
        group = self.optimizer.param_groups[0]
        rate = group["lr"]
        if adapts:
            rate = torch.as_tensor(rate, device=self.device)
            group["lr"] = adapted_learning_rate(rate, metrics["kl"], self.cfg.desired_kl)
        norm = gradient_step(self.optimizer, self.parameters, loss, self.cfg.max_grad_norm)
        if adapts:
            # Where no step is made the divergence stays, and would drive the rate to its bound.
            group["lr"] = torch.where(norm.isfinite(), group["lr"], rate)
        return metrics | {"grad_norm": norm}


def _finite_mean(scalars: list[torch.Tensor]) -> torch.Tensor:
    """Return the mean of those that are finite; not-a-number where none is."""
    values = torch.stack(scalars)
    return values[values.isfinite()].mean()
