"""The Gaussian actor-critic policy.

Legend: ... any batch dimensions, O flattened observation size, A action size.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models.normalizer import RunningNormalizer
from embodichain.agents.rl.models.policy import Policy

__all__ = ["ActorCritic", "bounded", "gaussian_entropy", "gaussian_log_prob"]

LOG_STD_MIN = -5.0  # std 0.0067
LOG_STD_MAX = 2.0  # std 7.4

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class ActorCritic(Policy):
    """Actions are normal around ``actor(obs)`` with a learned deviation that does not depend on the state.

    Actions are not clipped here: the log-probability is the raw sample's, and the environment clips what it is given.
    Log-standard-deviations stay within [-5, 2].

    Args:
        obs_dim: O.
        action_dim: A.
        device: where the parameters go.
        actor: [..., O] -> [..., A], the mean of the action.
        critic: [..., O] -> [..., 1], the value.
        normalize_obs: normalise observations by their running mean and deviation before both networks; see
            ``update_normalizer``.
        init_log_std: initial log-standard-deviation of every action component.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        device: torch.device | str,
        actor: nn.Module,
        critic: nn.Module,
        normalize_obs: bool = False,
        init_log_std: float = 0.0,
    ) -> None:
        super().__init__()
        self.obs_dim = obs_dim
        self.action_dim = action_dim
        self.actor = actor
        self.critic = critic
        self.normalizer: nn.Module = RunningNormalizer(obs_dim) if normalize_obs else nn.Identity()
        self.log_std = nn.Parameter(torch.full((action_dim,), float(init_log_std)))
        self.to(device)

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose actions; see ``Policy.forward``. The most likely action is the mean."""
        obs = self.normalizer(td["obs"])
        mean = self.actor(obs)
        log_std = self._bounded_log_std()
        action = mean if deterministic else torch.addcmul(mean, log_std.exp(), torch.randn_like(mean))
        td["action"] = action
        td["sample_log_prob"] = gaussian_log_prob(action, mean, log_std)
        td["value"] = self.critic(obs).squeeze(-1)
        return td

    def get_value(self, td: TensorDict) -> TensorDict:
        """Write ``value`` [...]; see ``Policy.get_value``."""
        td["value"] = self.critic(self.normalizer(td["obs"])).squeeze(-1)
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        """Return ``sample_log_prob``, ``entropy`` and ``value``; see ``Policy.evaluate_actions``."""
        obs = self.normalizer(td["obs"])
        log_std = self._bounded_log_std()
        log_prob = gaussian_log_prob(td["action"], self.actor(obs), log_std)
        return TensorDict(
            {
                "sample_log_prob": log_prob,
                "entropy": gaussian_entropy(log_std).expand_as(log_prob),
                "value": self.critic(obs).squeeze(-1),
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


def gaussian_log_prob(action: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """Return the log-density of actions [..., A] under independent normals: [...].

    log p = -1/2 sum_i ((a_i - mu_i) / sigma_i)^2 - sum_i log sigma_i - A/2 log 2 pi. ``torch.distributions`` computes
    the same several times slower.

    Args:
        action: [..., A].
        mean: [..., A].
        log_std: [A].
    """
    z = (action - mean) * (-log_std).exp()
    return -0.5 * z.square().sum(-1) - (log_std.sum() + log_std.numel() * _HALF_LOG_2PI)


def gaussian_entropy(log_std: torch.Tensor) -> torch.Tensor:
    """Return the entropy, in nats, of independent normals with ``log_std`` [A]: a scalar."""
    return log_std.sum() + log_std.numel() * (0.5 + _HALF_LOG_2PI)


def bounded(x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Clamp ``x`` to [low, high], with a gradient that can pull it back inside.

    ``torch.clamp`` has no gradient beyond its bounds: a parameter that an optimiser step carries past one would stay
    there for ever. Here, at or beyond a bound, the gradient is dropped only where descending it leads further out.
    """
    bounded_x: torch.Tensor = _Bounded.apply(x, low, high)
    return bounded_x


class _Bounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, low: float, high: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.bounds = (low, high)
        return x.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (x,) = ctx.saved_tensors
        (grad,) = grads
        low, high = ctx.bounds
        outward = ((x >= high) & (grad < 0)) | ((x <= low) & (grad > 0))  # descent moves against the gradient
        return grad.masked_fill(outward, 0.0), None, None
