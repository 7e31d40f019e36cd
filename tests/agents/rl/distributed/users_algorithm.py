"""An algorithm as users write them: it knows nothing of several processes but the two helpers."""

import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo import (
    AlgorithmCfg,
    BaseAlgorithm,
    compute_gae,
    gradient_step,
    normalize_advantages,
    register_algo,
)
from embodichain.agents.rl.buffer import iterate_minibatches, learning_batch
from embodichain.agents.rl.models import Policy


@register_algo("users_a2c")
class UsersA2C(BaseAlgorithm):
    def __init__(self, cfg: AlgorithmCfg, policy: Policy) -> None:
        self.cfg = cfg
        self.policy = policy
        self.device = torch.device(cfg.device)
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=cfg.learning_rate, eps=1e-5)

    def update(self, rollout: TensorDict) -> dict[str, float]:
        advantages, returns = compute_gae(rollout, self.cfg.gamma, self.cfg.gae_lambda)
        batch = learning_batch(rollout, self.policy, advantage=normalize_advantages(advantages), target=returns)
        for minibatch in iterate_minibatches(batch, self.cfg.batch_size, self.device):
            new = self.policy.evaluate_actions(minibatch)
            loss = (new["value"] - minibatch["target"]).square().mean()
            loss = loss - (new["sample_log_prob"] * minibatch["advantage"]).mean()
            gradient_step(self.optimizer, self.policy.parameters(), loss, self.cfg.max_grad_norm)
        return {"loss": loss.item()}


@register_algo("users_careless")
class Careless(UsersA2C):
    """Steps its optimiser with its own rank's gradient."""

    def update(self, rollout: TensorDict) -> dict[str, float]:
        loss = self.policy.evaluate_actions(learning_batch(rollout, self.policy))["sample_log_prob"].mean()
        loss.backward()
        self.optimizer.step()
        return {}
