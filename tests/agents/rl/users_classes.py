"""An algorithm and a policy as they are written outside the package: only what the interface asks for."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from torch import nn
from torch.distributions import Independent, Normal

from embodichain.agents.rl.algo import BaseAlgorithm, compute_gae, gradient_step, register_algo
from embodichain.agents.rl.buffer import iterate_minibatches, learning_batch
from embodichain.agents.rl.models import Policy, register_policy
from embodichain.utils import configclass

SIZE, ACTIONS = 3, 2  # of `Users` where none are given


@configclass
class RegressionCfg:
    """No learning rate, no minibatches."""

    device: str = "cpu"
    rate: float = 0.05


@register_algo("users_regression")
class Regression(BaseAlgorithm):
    """Has two optimisers and settings that are not ``AlgorithmCfg``'s; returns tensors and whole numbers to log."""

    cfg_class = RegressionCfg
    policy: Gaussian

    def __init__(self, cfg: RegressionCfg, policy: Any) -> None:
        self.cfg = cfg
        self.policy = policy
        self.device = torch.device(cfg.device)
        self.actor_optimizer = torch.optim.Adam([*policy.actor.parameters(), policy.log_std], lr=cfg.rate)
        self.critic_optimizer = torch.optim.Adam(policy.critic.parameters(), lr=cfg.rate)
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.actor_optimizer, 0.9)

    def update(self, rollout: TensorDict) -> dict[str, Any]:
        advantages, returns = compute_gae(rollout, 0.9, 0.9)
        batch = learning_batch(rollout, self.policy, advantage=advantages, target=returns)
        for minibatch in iterate_minibatches(batch, 4, self.device):
            actor_loss, critic_loss = self.loss(minibatch, 0.5)
            gradient_step(self.actor_optimizer, self.policy.actor.parameters(), actor_loss, 1.0)
            gradient_step(self.critic_optimizer, self.policy.critic.parameters(), critic_loss, 1.0)
        self.schedule.step()
        return {"actor_loss": actor_loss, "critic_loss": float(critic_loss.detach()), "updates": 1}

    def loss(self, batch: TensorDict, weight: float) -> tuple[torch.Tensor, torch.Tensor]:
        evaluated = self.policy.evaluate_actions(batch)
        critic_loss = weight * (evaluated["value"] - batch["target"]).square().mean()
        return -(evaluated["log_prob"] * batch["advantage"]).mean(), critic_loss


class Users(Policy):
    """Written from the interface: nothing but what it says, ``evaluate_actions`` with the name ``log_prob``."""

    def __init__(self, obs_dim: int = SIZE, action_dim: int = ACTIONS, device: Any = "cpu", config: Any = None) -> None:
        super().__init__()
        self.device = device
        self.actor, self.critic = nn.Linear(obs_dim, action_dim), nn.Linear(obs_dim, 1)
        self.log_std = nn.Parameter(torch.zeros(action_dim))

    def distribution(self, tensordict: TensorDict) -> Independent:
        return Independent(Normal(self.actor(tensordict["obs"]), self.log_std.exp()), 1)

    def forward(self, tensordict: TensorDict, deterministic: bool = False) -> TensorDict:
        normal = self.distribution(tensordict)
        tensordict["action"] = normal.mean if deterministic else normal.sample()
        tensordict["sample_log_prob"] = normal.log_prob(tensordict["action"])
        return self.get_value(tensordict)

    def get_value(self, tensordict: TensorDict) -> TensorDict:
        tensordict["value"] = self.critic(tensordict["obs"]).squeeze(-1)
        return tensordict

    def evaluate_actions(self, tensordict: TensorDict) -> TensorDict:
        normal = self.distribution(tensordict)
        evaluated = {"log_prob": normal.log_prob(tensordict["action"]), "entropy": normal.entropy()}
        value = self.critic(tensordict["obs"]).squeeze(-1)
        return TensorDict(evaluated | {"value": value}, batch_size=tensordict.batch_size)


@register_policy("users_gaussian")
class Gaussian(Users):
    """Has a start for its std in the config, and chooses the actions itself."""

    def __init__(self, obs_dim, action_dim, device, config):
        super().__init__(obs_dim, action_dim, device)
        nn.init.constant_(self.log_std, config.get("init_log_std", 0.0))
        self.to(device)

    def get_action(self, tensordict: TensorDict, deterministic: bool = False) -> TensorDict:
        with torch.no_grad():
            return self.forward(tensordict, deterministic)


@register_policy("users_actor")
class UsersActor(Gaussian):
    """Without a critic: zeros for the collector, and nothing of it in ``evaluate_actions``."""

    def get_value(self, tensordict: TensorDict) -> TensorDict:
        tensordict["value"] = torch.zeros(tensordict.batch_size)
        return tensordict

    def evaluate_actions(self, tensordict: TensorDict) -> TensorDict:
        return super().evaluate_actions(tensordict).exclude("value")
