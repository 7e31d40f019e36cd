import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo import BaseAlgorithm, compute_gae, register_algo
from embodichain.agents.rl.buffer import transition_view


@register_algo("my_algo")
class MyAlgorithm(BaseAlgorithm):
    def __init__(self, cfg, policy):
        self.cfg = cfg
        self.policy = policy
        self.device = torch.device(cfg.device)
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=cfg.learning_rate)

    def update(self, rollout: TensorDict):
        """Make one step of an actor-critic with the whole rollout."""
        advantages, returns = compute_gae(rollout, self.cfg.gamma, self.cfg.gae_lambda)
        batch = transition_view(rollout, flatten=True)
        new = self.policy.evaluate_actions(batch)
        policy_loss = -(new["sample_log_prob"] * advantages.reshape(-1)).mean()
        value_loss = (new["value"] - returns.reshape(-1)).square().mean()
        self.optimizer.zero_grad()
        (policy_loss + 0.5 * value_loss).backward()
        self.optimizer.step()
        return {"loss": policy_loss.item(), "value_loss": value_loss.item()}
