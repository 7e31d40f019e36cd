"""What the Gaussian policies have in common: input statistics, a learned deviation, bounds.

Legend: ... any batch dimensions, O flattened observation size, A action size.
"""

from __future__ import annotations

import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models.gaussian import TanhSquash, bounded, evaluate_gaussian, sample_gaussian
from embodichain.agents.rl.models.gaussian_chunk import evaluate_gaussian_chunk, sample_gaussian_chunk
from embodichain.agents.rl.models.normalizer import RunningNormalizer
from embodichain.agents.rl.models.policy import Policy

__all__ = ["GaussianPolicy"]


class GaussianPolicy(Policy):
    """Actions are normal around a mean that a subclass computes; their learned deviation is the same in all states.

    Args:
        obs_dim: O.
        action_dim: A.
        normalize_obs, init_log_std, log_std_range, squash, chunk_length: as for ``ActorCritic``.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        normalize_obs: bool,
        init_log_std: float,
        log_std_range: tuple[float, float],
        squash: TanhSquash | None,
        chunk_length: int = 1,
    ) -> None:
        super().__init__()
        self.obs_dim = obs_dim
        self.action_dim = action_dim
        self.chunk_length = chunk_length
        size = chunk_length * action_dim
        self.extra_fields = (("raw_action", size),) if squash is not None else ()
        self.has_normalizer = normalize_obs
        self.normalizer: nn.Module = RunningNormalizer(obs_dim) if normalize_obs else nn.Identity()
        self.log_std = nn.Parameter(torch.full((size,), float(init_log_std)))
        self.log_std_range = log_std_range
        self.squash = squash

    def update_normalizer(self, obs: torch.Tensor) -> None:
        """Merge observations [..., O] into the running statistics; without ``normalize_obs`` it does nothing."""
        if isinstance(self.normalizer, RunningNormalizer):
            self.normalizer.update(obs)

    @torch.no_grad()
    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Return ``std``, the mean standard deviation of the action's components (of the raw ones with ``squash``)."""
        return {"std": self._bounded_log_std().exp().mean()}

    def _sample(self, td: TensorDict, mean: torch.Tensor, deterministic: bool) -> None:
        """Write what ``forward`` says of actions around a mean [..., A], or with chunks [..., H A]."""
        log_std = self._bounded_log_std()
        if self.chunk_length == 1:
            sample_gaussian(td, mean, log_std, self.squash, deterministic)
        else:
            sample_gaussian_chunk(td, mean, log_std, self.squash, deterministic, self.chunk_length)

    def _evaluate(self, td: TensorDict, mean: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return what ``evaluate_actions`` says of actions around a mean [..., A], or with chunks [..., H A]."""
        log_std = self._bounded_log_std()
        if self.chunk_length == 1:
            return evaluate_gaussian(td, mean, log_std, self.squash)
        return evaluate_gaussian_chunk(td, mean, log_std, self.squash, self.chunk_length)

    def _bounded_log_std(self) -> torch.Tensor:
        return bounded(self.log_std, *self.log_std_range)
