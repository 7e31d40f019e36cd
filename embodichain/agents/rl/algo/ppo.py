"""Proximal policy optimization.

Legend: N envs, T rollout steps, B minibatch, L sequence length; ... any shape, of samples.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo import older_policies, on_policy, optim
from embodichain.agents.rl.algo.advantages import compute_gae, explained_variance, normalize_advantages
from embodichain.agents.rl.algo.registry import register_algo
from embodichain.agents.rl.algo.return_scale import ReturnScale
from embodichain.agents.rl.algo.symmetry import Symmetry, SymmetryCfg
from embodichain.agents.rl.buffer.rollout_buffer import check_rollout, iterate_minibatches, learning_batch
from embodichain.agents.rl.distributed import get_process_group
from embodichain.agents.rl.models import Policy, action_log_prob
from embodichain.utils import ConfigError, configclass
from embodichain.utils.observations import MirrorMap
from embodichain.utils.profiling import section


@configclass
class PPOCfg(on_policy.AlgorithmCfg):
    """Hyperparameters of PPO."""

    clip_coef: PositiveFloat = 0.2
    """How far the probability ratio may leave 1 before a sample stops pushing it further."""
    ent_coef: NonNegativeFloat = 0.0
    """Weight of the entropy bonus."""
    vf_coef: NonNegativeFloat = 0.5
    """Weight of the value loss."""
    lr_schedule: Literal["constant", "linear", "adaptive"] = "constant"
    """``learning_rate`` stays constant, falls linearly to 0 over the training, or adapts to ``desired_kl`` between
    1e-5 and 1e-2; a first rate outside of these bounds widens them."""
    desired_kl: PositiveFloat = 0.01
    """For ``"adaptive"``: the KL divergence (nats an action) from the rollout's policy that an update should reach."""
    max_kl: PositiveFloat | None = None
    """An epoch whose mean approximate KL divergence (nats an action) exceeds this is the update's last; None: never."""
    clip_value_coef: PositiveFloat | None = None
    """How far a value may move in an update before its error stops counting, in units of the return, or
    of its std with ``normalize_returns``. None: no bound."""
    normalize_advantages: Literal["rollout", "minibatch", "none"] = "rollout"
    """Samples over which advantages are normalised to mean 0 and std 1."""
    normalize_returns: bool | None = None
    """Learn values in units of the returns' running mean and std: the rewards' scale and offset do not matter. Null: in
    Gymnasium environments alone."""
    kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL divergence from the policy at the start of the training; 0: no reference policy is stored."""
    critic_warmup: NonNegativeInt = 0
    """The training's first updates, in which only the critic learns: for a policy that is good already, with a
    critic that begins at random."""
    decoupled: bool = True
    """Correct by importance weights for the older policies of asynchronous collection; no effect without ``lag``."""
    behaviour_weight_cap: PositiveFloat = 5.0
    """The highest importance weight of such a sample."""
    symmetry: SymmetryCfg | None = None
    """Learn from mirror images of the samples, in an environment that declares its mirror map; None: from the samples
    alone."""


def value_error(
    value: torch.Tensor, returns: torch.Tensor, old_value: torch.Tensor | None = None, clip_coef: float | None = None
) -> torch.Tensor:
    """Return (V - R)^2 or, with a bound c, max((V - R)^2, (V_old + clip(V - V_old, -c, c) - R)^2) for each sample.

    A value that has moved further than c towards the return has no gradient; one that moved away from the return has.
    As in OpenAI Baselines' ppo2 (2017) and Berner et al., "Dota 2 with Large Scale Deep Reinforcement Learning", 2019.

    Args:
        old_value: V_old, the rollout's, [...]; read with a bound.
        clip_coef: c, in units of the return; None: no bound.
    """
    error = (value - returns).square()
    if clip_coef is None or old_value is None:
        return error
    clipped = old_value + (value - old_value).clamp(-clip_coef, clip_coef)
    return torch.max(error, (clipped - returns).square())


@register_algo("ppo")
class PPO(on_policy.OnPolicyAlgorithm):
    """Clipped PPO (Schulman et al., "Proximal Policy Optimization Algorithms", 2017) with generalised advantages.

    Each update makes ``n_epochs`` passes over the rollout in shuffled minibatches, and descends

        - mean min(r A, clip(r) A)  +  vf_coef * mean (V - return)^2 / 2  -  ent_coef * mean entropy
        +  kl_coef * mean KL(policy || reference)

    with Adam (eps 1e-5, as in OpenAI Baselines). The reference, with ``kl_coef`` > 0, is the policy as it began (see
    ``OnPolicyAlgorithm.reference``). The first ``critic_warmup`` updates descend the second term alone, with all
    parameters that the actions depend on frozen.

    ``lr_schedule: "adaptive"`` corrects the learning rate before each gradient step but an update's first, by the exact
    KL divergence (see ``adapted_learning_rate``); in the warm-up it stays as it is. ``max_kl`` ends an update early, as
    Spinning Up (2018) and Stable-Baselines3 do; here the host reads the divergence once an epoch, so that no minibatch
    waits for it.

    Behind doors: rollouts of older policies (``older_policies.py``), chunks of actions (``chunks.py``), mirror images
    of samples (``symmetry.py``), units of values (``return_scale.py``). Of several processes, each one's mean has the
    same weight.
    """

    cfg_class = PPOCfg
    cfg: PPOCfg
    symmetry: Symmetry | None = None
    """Set by ``use_mirror_map``."""

    def __init__(self, cfg: PPOCfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        self._adapts = cfg.lr_schedule == "adaptive"
        if self._adapts and not policy.distribution_fields:
            raise ConfigError(
                f"algorithm.cfg.lr_schedule: {type(policy).__name__} has no exact KL divergence to adapt to"
            )
        self._warmup_left = cfg.critic_warmup
        self.optimizer = self.make_optimizer(self.parameters, self._adapts)
        if cfg.symmetry is not None:
            self.needs = ("mirror_map",)
        self.return_scale = ReturnScale().to(self.device) if cfg.normalize_returns else None
        if cfg.kl_coef > 0:
            self.reference = policy.reference()

    def use_mirror_map(self, mirror_map: MirrorMap) -> None:
        """Set the environment's mirror map, which ``cfg.symmetry`` needs before the first update; see ``Symmetry``."""
        assert self.cfg.symmetry is not None
        self.symmetry = Symmetry(self.cfg.symmetry, self.policy, mirror_map.to(self.device))

    def update(self, rollout: TensorDict) -> dict[str, float]:
        """Improve the policy; see ``BaseAlgorithm.update``.

        Returns:
            Means over the minibatches without a skipped step of the scalars of ``loss`` and ``grad_norm`` (before
            clipping); ``explained_variance`` of the returns by the rollout's values; ``epochs``, the number made; the
            last ``learning_rate``; and the policy's diagnostics after the update, such as ``std``.
        """
        cfg = self.cfg
        check_rollout(rollout)
        if cfg.symmetry is not None and self.symmetry is None:
            raise ConfigError("algorithm.cfg.symmetry: needs algorithm.use_mirror_map(env.mirror_map()) first")
        if cfg.lr_schedule == "linear":
            self.optimizer.param_groups[0]["lr"] = cfg.learning_rate * (1 - self.progress)
        batch, explained = self._prepare(rollout.to(self.device))

        means = optim.MetricMeans()
        adapts = self._adapts and not self._warmup_left  # the divergence of a policy that does not move is 0
        with self._warming_up(batch):
            for epoch in range(cfg.n_epochs):
                kls: list[torch.Tensor] = []
                for minibatch in iterate_minibatches(batch, cfg.batch_size, self.device):
                    metrics = self._step(minibatch, adapts=adapts and bool(epoch or kls))
                    means.add(metrics)
                    kls.append(metrics["approx_kl"])
                if cfg.max_kl is not None:
                    values = torch.stack(kls)
                    if get_process_group().mean(values[values.isfinite()].mean()) > cfg.max_kl:
                        break
        self._warmup_left = max(0, self._warmup_left - 1)
        scalars = means.read(explained_variance=explained, **self.policy.diagnostics())
        return scalars | {"epochs": float(epoch + 1), "learning_rate": float(self.optimizer.param_groups[0]["lr"])}

    @contextmanager
    def _warming_up(self, batch: TensorDict) -> Iterator[None]:
        """In the block, freeze the parameters that actions depend on, while the critic alone learns.

        The value loss must not reach the layers that actor and critic share.
        """
        frozen: list[nn.Parameter] = []
        if self._warmup_left:
            trained = [p for p in self.parameters if p.requires_grad]
            log_prob = action_log_prob(self.policy.evaluate_actions(batch[:1]))
            grads = torch.autograd.grad(log_prob.sum(), trained, allow_unused=True)
            frozen = [p for p, grad in zip(trained, grads, strict=True) if grad is not None]
        nn.ParameterList(frozen).requires_grad_(False)
        try:
            yield
        finally:
            nn.ParameterList(frozen).requires_grad_(True)

    @section("loss")
    def loss(self, batch: TensorDict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss to descend and, detached, the scalars to log.

        The scalars are ``policy_loss``, ``value_loss``, ``entropy``, ``approx_kl`` (nats an action), ``clip_fraction``
        (share of samples whose ratio left the clip range), ``kl`` with an adaptive rate, ``reference_kl`` with a
        reference, ``mirror_loss`` without its weight, and those of ``weight_metrics``. Divergences and
        ``clip_fraction`` leave out the mirror images.

        Args:
            batch: [B], or [B, L] sequences: from ``learning_batch``, with what ``_prepare`` adds.
        """
        cfg = self.cfg
        samples = batch if self.symmetry is None else self.symmetry.samples(batch)
        new = self.policy.evaluate_actions(samples)
        rows = on_policy.compare(samples, new, cfg.logprob_level)
        ratio = (rows.log_prob - rows.old_log_prob).exp()
        objective = rows.weight * on_policy.clipped_surrogate(ratio, rows.advantage, cfg.clip_coef)
        policy_loss = -on_policy.masked_mean(objective, rows.mask)
        old_value = samples.get("old_value", None)
        value_loss = 0.5 * value_error(new["value"], samples["return"], old_value, cfg.clip_value_coef).mean()
        entropy = on_policy.masked_mean(rows.entropy, rows.action_mask)
        evaluated = new
        if self.symmetry is not None and samples is not batch:
            kept = self.symmetry.kept(batch)
            batch, evaluated, ratio = batch[:kept], new[:kept], ratio[:kept]
            rows = on_policy.compare(batch, evaluated, cfg.logprob_level)
        more: dict[str, torch.Tensor] = {}
        loss = policy_loss + cfg.vf_coef * value_loss
        if cfg.ent_coef:  # 0 times an entropy that a policy does not know (NaN) would be NaN
            loss = loss - cfg.ent_coef * entropy
        if rows.reference_log_prob is not None:
            more["reference_kl"] = on_policy.mean_reference_kl(rows)
            loss = loss + cfg.kl_coef * more["reference_kl"]
        if self.symmetry is not None and cfg.symmetry is not None and cfg.symmetry.mirror_loss_coef:
            more["mirror_loss"] = self.symmetry.loss(samples, new)
            loss = loss + cfg.symmetry.mirror_loss_coef * more["mirror_loss"]
        if self._warmup_left:
            loss = cfg.vf_coef * value_loss
        with torch.no_grad():
            metrics = {
                **{name: value.detach() for name, value in more.items()},
                "policy_loss": policy_loss.detach(),
                "value_loss": value_loss.detach(),
                "entropy": entropy.detach(),
                "approx_kl": on_policy.masked_mean(on_policy.k3(rows.action_log_ratio), rows.action_mask),
                "clip_fraction": on_policy.masked_mean(((ratio - 1).abs() > cfg.clip_coef).float(), rows.mask),
            }
            if self._adapts:
                kl = self.policy.kl_divergence(batch["old"], evaluated)
                metrics["kl"] = get_process_group().mean(on_policy.masked_mean(kl, rows.action_mask))
            return loss, metrics | older_policies.weight_metrics(rows, cfg.behaviour_weight_cap)

    @section("advantages")
    def _prepare(self, rollout: TensorDict) -> tuple[TensorDict, torch.Tensor]:
        """Return the batch, and the explained variance of the returns by the old values."""
        cfg, old_value = self.cfg, rollout["value"][:, :-1]
        if self.return_scale is not None:
            self.return_scale.update(rollout, cfg.gamma)
        advantages, returns = compute_gae(rollout, cfg.gamma, cfg.gae_lambda, self.return_scale)
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
        weighs = cfg.decoupled and is_behind
        if self._adapts or weighs or older_policies.is_rounded(self):
            old, cap = self.evaluate(batch), cfg.behaviour_weight_cap if weighs else None
            older_policies.set_proximal(self, batch, old, cap, cfg.logprob_level)
            if self._adapts:
                batch["old"] = old.select(*self.policy.distribution_fields)
        self.add_reference(batch)
        return batch, explained_variance(old_value, returns)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a resumed training needs."""
        warmup = {"warmup_left": self._warmup_left} if self.cfg.critic_warmup else {}
        return super().state_dict() | warmup

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what ``state_dict`` returned."""
        self._warmup_left = state.get("warmup_left", 0)
        super().load_state_dict(state)

    def _step(self, minibatch: TensorDict, adapts: bool) -> dict[str, torch.Tensor]:
        """Make one gradient step; ``adapts``: the learning rate first adapts to the KL divergence."""
        if self.cfg.normalize_advantages == "minibatch":
            minibatch["advantage"] = normalize_advantages(minibatch["advantage"])
        loss, metrics = self.loss(minibatch)
        group = self.optimizer.param_groups[0]
        rate = group["lr"]
        if adapts:
            rate = torch.as_tensor(rate, device=self.device)
            group["lr"] = optim.adapted_learning_rate(rate, metrics["kl"], self.cfg.desired_kl, self.cfg.learning_rate)
        norm = optim.gradient_step(self.optimizer, self.parameters, loss, self.cfg.max_grad_norm)
        if adapts:
            # After a skipped step the divergence stays, and would drive the rate to its bound.
            group["lr"] = torch.where(norm.isfinite(), group["lr"], rate)
        return metrics | {"grad_norm": norm}
