"""What vision-language-action models with normally distributed actions share.

Legend: B batch, H steps of an action chunk, A action size, J size of the state.
"""

from __future__ import annotations

from typing import Self

import torch
from pydantic import model_validator
from torch import nn

from embodichain.agents.rl.models.distributions import bounded, component_entropy, component_log_prob
from embodichain.agents.rl.models.vla.model_cfg import VLAModel, VLAModelCfg
from embodichain.utils import configclass

__all__ = ["GaussianVLA", "GaussianVLACfg"]


@configclass
class GaussianVLACfg(VLAModelCfg):
    """The part of a ``model_config`` that these models share."""

    init_log_std: float = -1.0
    """Initial log-standard-deviation of every action."""
    log_std_range: tuple[float, float] = (-1.6, 0.5)
    """Lowest and highest log-standard-deviation; the lowest is what exploration is left with."""

    @model_validator(mode="after")
    def _is_in_range(self) -> Self:
        low, high = self.log_std_range
        if not low < high or not low <= self.init_log_std <= high:
            raise ValueError(f"init_log_std {self.init_log_std} must lie in log_std_range [{low}, {high}], not empty")
        return self


class GaussianVLA(VLAModel):
    """Deviations of the actions, which are parameters, and the normalisation of the robot's state.

    Args:
        cfg: sizes and deviations.
    """

    state_mean: torch.Tensor  # [J]
    state_std: torch.Tensor  # [J]

    def __init__(self, cfg: GaussianVLACfg) -> None:
        super().__init__(cfg)
        self._log_std_range = cfg.log_std_range
        self.log_std = nn.Parameter(torch.full((cfg.chunk_length, cfg.action_dim), cfg.init_log_std))
        self.register_buffer("state_mean", torch.zeros(cfg.state_dim))
        self.register_buffer("state_std", torch.ones(cfg.state_dim))

    def fit_inputs(self, state: torch.Tensor) -> None:
        """Take mean and deviation of states [M, J], by which all states are normalised from now on."""
        self.state_mean.copy_(state.mean(0))
        self.state_std.copy_(state.std(0).clamp(min=1e-3))

    def std(self) -> torch.Tensor:
        """Return the actions' standard deviations, [H, A]."""
        return self.bounded_log_std().exp()

    def bounded_log_std(self) -> torch.Tensor:
        """Return the actions' log-standard-deviations, [H, A]."""
        return bounded(self.log_std, *self._log_std_range)

    def normalized(self, state: torch.Tensor) -> torch.Tensor:
        """Return states [B, J] by the statistics of ``fit_inputs``."""
        return (state - self.state_mean) / self.state_std

    def choose(self, mean: torch.Tensor, deterministic: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions around a mean, and the log-probability of each of their numbers, all [B, H, A]."""
        log_std = self.bounded_log_std()
        action = mean if deterministic else torch.addcmul(mean, log_std.exp(), torch.randn_like(mean))
        return action, component_log_prob(action, mean, log_std)

    def judge(self, actions: torch.Tensor, mean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities and entropies (nats) of actions around a mean, all [B, H, A]."""
        log_std = self.bounded_log_std()
        return component_log_prob(actions, mean, log_std), component_entropy(log_std).expand_as(mean)
