import torch
from tensordict import TensorDict
from torch import nn
from torch.distributions import Normal

from embodichain.agents.rl.models import Policy, register_policy


@register_policy("my_policy")
class MyPolicy(Policy):
    def __init__(self, obs_dim, action_dim, device, config):
        super().__init__()
        self.device = device
        self.mean = nn.Linear(obs_dim, action_dim)
        self.log_std = nn.Parameter(torch.zeros(action_dim))
        self.critic = nn.Linear(obs_dim, 1)
        self.to(device)

    def forward(self, tensordict, deterministic=False):
        actions = Normal(self.mean(tensordict["obs"]), self.log_std.exp())
        tensordict["action"] = actions.mean if deterministic else actions.sample()
        tensordict["sample_log_prob"] = actions.log_prob(tensordict["action"]).sum(-1)
        return self.get_value(tensordict)

    @torch.no_grad()
    def get_action(self, tensordict, deterministic=False):
        return self.forward(tensordict, deterministic)

    def get_value(self, tensordict):
        tensordict["value"] = self.critic(tensordict["obs"]).squeeze(-1)
        return tensordict

    def evaluate_actions(self, tensordict):
        actions = Normal(self.mean(tensordict["obs"]), self.log_std.exp())
        return TensorDict(
            {
                "log_prob": actions.log_prob(tensordict["action"]).sum(-1),
                "entropy": actions.entropy().sum(-1),
                "value": self.critic(tensordict["obs"]).squeeze(-1),
            },
            batch_size=tensordict.batch_size,
        )
