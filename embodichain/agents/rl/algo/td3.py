"""Twin delayed deterministic policy gradient. Legend: B batch, A action size."""

from copy import deepcopy

import torch
from pydantic import NonNegativeFloat, PositiveInt
from tensordict import TensorDict

from embodichain.agents.rl.algo.off_policy import OffPolicyAlgorithm, OffPolicyCfg
from embodichain.agents.rl.algo.registry import register_algo
from embodichain.agents.rl.models import DeterministicActorCritic, Policy
from embodichain.utils import configclass


@configclass
class TD3Cfg(OffPolicyCfg):
    """Hyperparameters of TD3."""

    policy_delay: PositiveInt = 2
    """Gradient steps of the critics for each one of the actor, with which the targets move, too."""
    target_noise: NonNegativeFloat = 0.2
    """Std of the normal noise on the target actor's actions, scaled to [-1, 1]."""
    target_noise_clip: NonNegativeFloat = 0.5
    """Largest size of this noise."""


@register_algo("td3")
class TD3(OffPolicyAlgorithm):
    """Twin delayed deterministic policy gradient.

    Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods", 2018:

    - value of the next observation: Q_target(s', clip(mu_target(s') + clip(noise))), the target policy smoothed;
    - actor: mean -Q(s, mu(s)), every ``policy_delay`` steps of the critics, after which the targets move.

    Both use the Q of ``critic_reduction``; the paper's actor reads the first critic.
    """

    policy_class = DeterministicActorCritic
    cfg_class = TD3Cfg
    cfg: TD3Cfg
    policy: DeterministicActorCritic

    def __init__(self, cfg: TD3Cfg, policy: Policy) -> None:
        super().__init__(cfg, policy)
        self.target_actor = deepcopy(self.policy.actor).requires_grad_(False)
        self._followed += self._actor
        self._targets += self.target_actor.parameters()

    def _next_value(self, following: TensorDict) -> torch.Tensor:
        """Return the value [B] of the next observations: algorithm 1 of the paper, with the smoothing."""
        action = self.policy.choose(following, self.target_actor)
        limit = self.cfg.target_noise_clip
        noise = (self.cfg.target_noise * torch.randn_like(action)).clamp(-limit, limit)
        return self._reduce(self.policy.action_values(following, (action + noise).clamp(-1, 1), self.target_critics))

    def _improve_actor(self, batch: TensorDict) -> dict[str, torch.Tensor]:
        """Make a gradient step of the actor; return its metrics."""
        self.policy.is_trained.fill_(True)
        value = self._value_of_own(batch, self.policy.choose(batch))
        loss, metrics = self._with_imitation(-value.mean(), batch)
        norm = self._step(self.actor_optimizer, loss, self._actor)
        return {"grad_norm": norm, "actor_loss": loss.detach()} | metrics

    def _move_targets(self) -> None:
        if self._num_updates % self.cfg.policy_delay == 0:
            super()._move_targets()
