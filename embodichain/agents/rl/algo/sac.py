"""Soft actor-critic.

Legend: B batch, A action size.
"""

import math

import torch
from pydantic import PositiveFloat
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.algo.off_policy import OffPolicyAlgorithm, OffPolicyCfg
from embodichain.agents.rl.algo.registry import register_algo
from embodichain.agents.rl.models import Policy
from embodichain.utils import configclass


@configclass
class SACCfg(OffPolicyCfg):
    """Hyperparameters of SAC."""

    entropy_in_targets: bool = True
    """Whether targets have the entropy of the next action (soft values), or the rewards alone."""
    initial_temperature: PositiveFloat = 1.0
    """Weight of the entropy before the first gradient step."""
    target_entropy: float | None = None
    """Entropy that the temperature holds, nats, of an action scaled to [-1, 1]; null: -A."""

    def notices(self, rollout_steps: int, env_steps: int) -> list[str]:
        """Return what has no effect; see ``BaseAlgorithmCfg.notices``."""
        lines = super().notices(rollout_steps, env_steps)
        if self.demonstrations is not None and not self.imitation_coef and self.entropy_in_targets:
            lines.append(
                "algorithm.cfg.demonstrations: with the other defaults little is learned from them; the recipe "
                "pick_cube/sac_sparse has imitation_coef 2, entropy_in_targets false, n_steps 5, a low temperature"
            )
        return lines


class Temperature(nn.Module):
    """The weight of the entropy, learned as its logarithm."""

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(math.log(initial)))

    def forward(self) -> torch.Tensor:
        """Return the temperature, a scalar."""
        return self.log.exp()


@register_algo("sac")
class SAC(OffPolicyAlgorithm):
    """Soft actor-critic with a learned temperature.

    Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018:

    - value of the next observation: Q_target(s', a') - alpha log pi(a'|s');
    - actor: mean alpha log pi(a|s) - Q(s, a), a reparameterised from the policy;
    - temperature: mean -log alpha (log pi(a|s) + target entropy), with log alpha in the place of the paper's alpha: the
      gradient does not depend on alpha then, and Adam moves log alpha down as fast as up, whatever its step size.
    """

    cfg_class = SACCfg
    reads_evaluated = ("entropy",)  # which policies without a density do not have
    cfg: SACCfg

    def __init__(self, cfg: SACCfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        self.temperature = Temperature(cfg.initial_temperature).to(self.device)
        self.actor_optimizer.add_param_group({"params": [self.temperature.log], "weight_decay": 0.0})
        self.target_entropy = -self.policy.action_dim if cfg.target_entropy is None else cfg.target_entropy

    def _next_value(self, following: TensorDict) -> torch.Tensor:
        """Return the soft value [B] of the next observations: equation 3 of the paper."""
        action, log_prob = self.policy.sample(following)
        next_value = self._reduce(self.policy.action_values(following, action, self.target_critics))
        bonus = -self.temperature() * log_prob if self.cfg.entropy_in_targets else 0.0
        return next_value + bonus

    def _improve_actor(self, batch: TensorDict) -> dict[str, torch.Tensor]:
        """Make a gradient step of the actor, and one of the temperature; return their metrics."""
        action, log_prob = self.policy.sample(batch)
        temperature = self.temperature().detach()
        value = self._value_of_own(batch, action)
        loss, metrics = self._with_imitation((temperature * log_prob - value).mean(), batch)
        entropy = -log_prob.detach().mean()
        of_temperature = self.temperature.log * (entropy - self.target_entropy)
        norm = self._step(self.actor_optimizer, loss + of_temperature, self._actor)
        own = {"grad_norm": norm, "actor_loss": loss.detach(), "entropy": entropy, "temperature": temperature}
        return own | metrics
