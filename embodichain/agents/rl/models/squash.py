"""Maps from raw actions to the action space's bounds, with their log-slopes: linear, or by tanh.

Legend: ... any batch dimensions, A action size.
"""

import math
from typing import Any

import torch
from gymnasium import spaces
from torch import nn
from torch.nn.functional import softplus

from embodichain.utils import ConfigError
from embodichain.utils.choices import Choices

_INSIDE = 0.999  # of the half range: atanh(1) is infinite


class LinearScale(nn.Module):
    """Maps raw actions from [-1, 1] to the action space's bounds: a = centre + half-range * u.

    A component without two finite bounds stays as it is.

    Args:
        action_space: the action space of one environment, a Box [A].
        place: place in the config, for the message.
    """

    centre: torch.Tensor  # [A]
    half_range: torch.Tensor  # [A]
    log_half_range: torch.Tensor  # [], sum over the components

    def __init__(self, action_space: spaces.Space[Any] | int, place: str = "policy.scale_actions") -> None:
        super().__init__()
        if not isinstance(action_space, spaces.Box) or isinstance(action_space, Choices):
            kind = "choices, which PPO and GRPO learn" if isinstance(action_space, Choices) else action_space
            raise ConfigError(f"{place}: needs an action space with finite bounds, got {kind}")
        low, high = (torch.as_tensor(x, dtype=torch.float32) for x in (action_space.low, action_space.high))
        half_range = (high - low) / 2
        self.is_bounded = half_range.isfinite() & (half_range > 0)  # the largest float32 is no bound
        # Not in the state dict: they are the environment's.
        self.register_buffer("centre", torch.where(self.is_bounded, (high + low) / 2, 0.0), persistent=False)
        self.register_buffer("half_range", torch.where(self.is_bounded, half_range, 1.0), persistent=False)
        self.register_buffer("log_half_range", self.half_range.log().sum(), persistent=False)

    def forward(self, raw: torch.Tensor) -> torch.Tensor:
        """Return the actions of raw ones, [..., A] both."""
        return self.centre + self.half_range * raw

    def inverse(self, action: torch.Tensor) -> torch.Tensor:
        """Return the raw actions of actions, [..., A] both."""
        return (action - self.centre) / self.half_range

    def log_slope(self, raw: torch.Tensor) -> torch.Tensor:
        """Return log |da/du| of each component of raw actions u [..., A]: [..., A]."""
        return self.half_range.log().expand_as(raw)

    def log_det(self, raw: torch.Tensor) -> torch.Tensor:
        """Return log |da/du| of raw actions u [..., A]: [...]."""
        return self.log_half_range.expand(raw.shape[:-1])


class TanhSquash(LinearScale):
    """Maps raw actions into the action space's bounds: a = centre + half-range * tanh(u).

    Args:
        slope_floor: added to the slope of tanh in log-densities; see ``log_det``.
    """

    def __init__(
        self, action_space: spaces.Space[Any] | int, place: str = "policy.squash", slope_floor: float = 0.0
    ) -> None:
        super().__init__(action_space, place)
        self.slope_floor = slope_floor
        if not self.is_bounded.all():
            needed = "an action space with finite bounds, each low below its high"
            raise ConfigError(f"{place}: needs {needed}, got {action_space}")

    def forward(self, raw: torch.Tensor) -> torch.Tensor:
        """Return the actions of raw ones, [..., A] both."""
        return super().forward(raw.tanh())

    def inverse(self, action: torch.Tensor) -> torch.Tensor:
        """Return the raw actions of actions, [..., A] both; bounds count as slightly inside (``_INSIDE``)."""
        return super().inverse(action).clamp(-_INSIDE, _INSIDE).atanh()

    def log_slope(self, raw: torch.Tensor) -> torch.Tensor:
        """Return log |da/du| of each component of raw actions u [..., A]: [..., A]; see ``log_det``."""
        return self.log_tanh_slope(raw) + self.half_range.log()

    def log_det(self, raw: torch.Tensor) -> torch.Tensor:
        """Return log |da/du| of raw actions u [..., A]: [...].

        log (1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), which stays exact where tanh rounds to 1. Haarnoja et al.,
        "Soft Actor-Critic", 2018, appendix C, in the form of TensorFlow Probability's ``Tanh`` bijector. With a
        ``slope_floor`` f it is log (1 - tanh(u)^2 + f), as in that paper's own code with f = 1e-6: further out than
        |u| = 7 the density hardly grows any more, and so nothing pulls u back.
        """
        return self.log_tanh_slope(raw).sum(-1) + self.log_half_range

    def log_tanh_slope(self, raw: torch.Tensor) -> torch.Tensor:
        """Return log (1 - tanh(u)^2) of each component of raw actions u [..., A]; see ``log_det``."""
        if self.slope_floor:
            return (1 - raw.tanh().square() + self.slope_floor).log()
        return 2 * (math.log(2) - raw - softplus(-2 * raw))
