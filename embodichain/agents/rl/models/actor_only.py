"""The Gaussian policy without a critic.

Legend: ... any batch dimensions, O flattened observation size, A action size.
"""

from __future__ import annotations

import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models.actor_critic import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    bounded,
    gaussian_entropy,
    gaussian_log_prob,
)
from embodichain.agents.rl.models.normalizer import RunningNormalizer
from embodichain.agents.rl.models.policy import Policy

__all__ = ["ActorOnly"]


class ActorOnly(Policy):
    """Chooses actions as ``ActorCritic`` does and values every state at 0: for algorithms without a critic.

    Args:
        obs_dim: O.
        action_dim: A.
        device: where the parameters go.
        actor: [..., O] -> [..., A], the mean of the action.
        normalize_obs: normalise observations by their running mean and deviation before the network.
        init_log_std: initial log-standard-deviation of every action component.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        device: torch.device | str,
        actor: nn.Module,
        normalize_obs: bool = False,
        init_log_std: float = 0.0,
    ) -> None:
        super().__init__()
        self.obs_dim = obs_dim
        self.action_dim = action_dim
        self.actor = actor
        self.normalizer: nn.Module = RunningNormalizer(obs_dim) if normalize_obs else nn.Identity()
        self.log_std = nn.Parameter(torch.full((action_dim,), float(init_log_std)))
        self.to(device)

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose actions; see ``Policy.forward``. The most likely action is the mean."""
        mean = self.actor(self.normalizer(td["obs"]))
        log_std = self._bounded_log_std()
        action = mean if deterministic else torch.addcmul(mean, log_std.exp(), torch.randn_like(mean))
        td["action"] = action
        td["sample_log_prob"] = gaussian_log_prob(action, mean, log_std)
        return self.get_value(td)

    def get_value(self, td: TensorDict) -> TensorDict:
        """Write zeros as ``value`` [...]."""
        obs = td["obs"]
        td["value"] = obs.new_zeros(obs.shape[:-1])
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        """Return what ``Policy.evaluate_actions`` says of a Gaussian policy; ``value`` is zeros."""
        mean = self.actor(self.normalizer(td["obs"]))
        log_std = self._bounded_log_std()
        log_prob = gaussian_log_prob(td["action"], mean, log_std)
        return TensorDict(
            {
                "sample_log_prob": log_prob,
                "entropy": gaussian_entropy(log_std).expand_as(log_prob),
                "value": torch.zeros_like(log_prob),
                "mean": mean,
                "log_std": log_std.expand_as(mean),
            },
            batch_size=td.batch_size,
        )

    def update_normalizer(self, obs: torch.Tensor) -> None:
        """Merge observations [..., O] into the running statistics; without ``normalize_obs`` it does nothing."""
        if isinstance(self.normalizer, RunningNormalizer):
            self.normalizer.update(obs)

    @torch.no_grad()
    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Return ``std``, the mean standard deviation of the action's components."""
        return {"std": self._bounded_log_std().exp().mean()}

    def _bounded_log_std(self) -> torch.Tensor:
        return bounded(self.log_std, LOG_STD_MIN, LOG_STD_MAX)
