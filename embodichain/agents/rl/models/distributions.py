"""Normal distributions of actions, and the maps of their samples to the action space's bounds.

Legend: ... any batch dimensions, A action size, H actions of a chunk. A distribution of chunks has H A components,
with separate log-probabilities.
"""

import math
from typing import Any

import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import nn
from torch.nn.functional import softplus

from embodichain.utils import ConfigError

LOG_STD_RANGE = (-5.0, 2.0)  # std 0.0067 to 7.4


_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


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
        if not isinstance(action_space, spaces.Box):
            raise ConfigError(f"{place}: needs an action space with finite bounds, got {action_space}")
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
        return self._log_tanh_slope(raw) + self.half_range.log()

    def log_det(self, raw: torch.Tensor) -> torch.Tensor:
        """Return log |da/du| of raw actions u [..., A]: [...].

        log (1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)), which stays exact where tanh rounds to 1. Haarnoja et al.,
        "Soft Actor-Critic", 2018, appendix C, in the form of TensorFlow Probability's ``Tanh`` bijector. With a
        ``slope_floor`` f it is log (1 - tanh(u)^2 + f), as in that paper's own code with f = 1e-6: further out than
        |u| = 7 the density hardly grows any more, and so nothing pulls u back.
        """
        return self._log_tanh_slope(raw).sum(-1) + self.log_half_range

    def _log_tanh_slope(self, raw: torch.Tensor) -> torch.Tensor:
        if self.slope_floor:
            return (1 - raw.tanh().square() + self.slope_floor).log()
        return 2 * (math.log(2) - raw - softplus(-2 * raw))


def with_raw_action(td: TensorDict, squash: LinearScale | None) -> TensorDict:
    """Return the input of ``evaluate_gaussian`` for actions [..., A] or [..., H, A] of another policy."""
    if squash is None:
        return td
    return td.copy().set("raw_action", squash.inverse(td["action"]).flatten(td.batch_dims))


def sample_gaussian(
    td: TensorDict,
    mean: torch.Tensor,
    log_std: torch.Tensor,
    squash: LinearScale | None,
    deterministic: bool,
    chunk_length: int = 1,
) -> None:
    """Write ``action`` [..., A], ``sample_log_prob`` [...] and, with ``squash``, ``raw_action`` [..., A] into ``td``.

    With chunks ``action`` and ``sample_log_prob`` are [..., H, A], and ``raw_action`` is [..., H A].

    Args:
        mean: [..., A], with chunks [..., H A].
        log_std: [A] or [..., A], with chunks [H A].
        squash: maps the sample, then stored as ``raw_action``, to bounds; None: the action is the sample.
        deterministic: take the mean instead of a sample.
        chunk_length: H.
    """
    raw = mean if deterministic else torch.addcmul(mean, log_std.exp(), torch.randn_like(mean))
    if squash is not None:
        td["raw_action"] = raw
    action = raw if chunk_length == 1 else raw.unflatten(-1, (chunk_length, -1))
    td["action"] = action if squash is None else squash(action)
    td["sample_log_prob"] = _log_prob(raw, mean, log_std, squash, chunk_length)


def evaluate_gaussian(
    td: TensorDict, mean: torch.Tensor, log_std: torch.Tensor, squash: LinearScale | None, chunk_length: int = 1
) -> dict[str, torch.Tensor]:
    """Return ``sample_log_prob`` and ``entropy`` [...], ``mean`` and ``log_std`` [..., A] of given actions.

    With chunks all four are [..., H, A].

    The entropy of a squashed distribution has no closed form: it is that of the normal distribution plus the mean of
    log |da/du|, here estimated from one sample u = mean + std * noise for each state, with its gradient. ``mean`` and
    ``log_std`` are the normal distribution's; its KL divergence also holds for the squashed ones.

    Args:
        td: tensors with the ``action`` or, with ``squash``, the ``raw_action``, as ``sample_gaussian`` wrote it.
        mean, log_std, squash, chunk_length: arguments as in ``sample_gaussian``.
    """
    raw = td["action"].flatten(td.batch_dims) if squash is None else td["raw_action"]
    log_prob, shape = _log_prob(raw, mean, log_std, squash, chunk_length), (chunk_length, -1)
    if chunk_length == 1:
        entropy = gaussian_entropy(log_std).expand_as(log_prob)
    else:
        entropy = component_entropy(log_std).expand_as(mean).unflatten(-1, shape)
    if squash is not None:
        noisy = torch.addcmul(mean, log_std.exp(), torch.randn_like(mean))
        slope = squash.log_det(noisy) if chunk_length == 1 else squash.log_slope(noisy.unflatten(-1, shape))
        entropy = entropy + slope
    log_std = log_std.expand_as(mean)
    if chunk_length > 1:
        mean, log_std = mean.unflatten(-1, shape), log_std.unflatten(-1, shape)
    return {"sample_log_prob": log_prob, "entropy": entropy, "mean": mean, "log_std": log_std}


def _log_prob(
    raw: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor, squash: LinearScale | None, chunk_length: int
) -> torch.Tensor:
    """Return log p, less log |da/du|, of each action [...]; with chunks of each component, [..., H, A]."""
    if chunk_length == 1:
        log_prob = gaussian_log_prob(raw, mean, log_std)
        return log_prob if squash is None else log_prob - squash.log_det(raw)
    log_prob = component_log_prob(raw, mean, log_std).unflatten(-1, (chunk_length, -1))
    return log_prob if squash is None else log_prob - squash.log_slope(raw.unflatten(-1, (chunk_length, -1)))


def gaussian_log_prob(action: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """Return the log-density of actions [..., A] under independent normals: [...].

    log p = -1/2 sum_i ((a_i - mu_i) / sigma_i)^2 - sum_i log sigma_i - A/2 log 2 pi. ``torch.distributions`` computes
    the same several times slower. ``mean`` is [..., A], and ``log_std`` [A] or [..., A].
    """
    z = (action - mean) * (-log_std).exp()
    return -0.5 * z.square().sum(-1) - (log_std.sum(-1) + log_std.shape[-1] * _HALF_LOG_2PI)


def component_log_prob(x: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """Return the log-density of each component of x, in its shape: -1/2 z^2 - log sigma - 1/2 log 2 pi."""
    z = (x - mean) * (-log_std).exp()
    return -0.5 * z.square() - log_std - _HALF_LOG_2PI


def component_entropy(log_std: torch.Tensor) -> torch.Tensor:
    """Return the entropy, in nats, of each component, in the shape of ``log_std``."""
    return log_std + 0.5 + _HALF_LOG_2PI


def gaussian_entropy(log_std: torch.Tensor) -> torch.Tensor:
    """Return the entropy, in nats, of independent normals with ``log_std`` [..., A]: [...]."""
    return log_std.sum(-1) + log_std.shape[-1] * (0.5 + _HALF_LOG_2PI)


def gaussian_kl(
    mean: torch.Tensor, log_std: torch.Tensor, other_mean: torch.Tensor, other_log_std: torch.Tensor
) -> torch.Tensor:
    """Return KL(p || q) of independent normals p and q, in nats: [...].

    KL = sum_i [log (s_q / s_p) + (s_p^2 + (m_p - m_q)^2) / (2 s_q^2) - 1/2]. It is the same after an invertible map of
    both, such as tanh. ``mean`` and ``log_std`` are m_p and log s_p, the others m_q and log s_q; all are [..., A].
    """
    log_ratio = log_std - other_log_std
    z = (mean - other_mean) * (-other_log_std).exp()
    return 0.5 * ((2 * log_ratio).expm1() - 2 * log_ratio + z.square()).sum(-1)


def bounded(x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Clamp ``x`` to [low, high], with a gradient that can pull it back inside.

    ``torch.clamp`` has no gradient beyond its bounds: a parameter that an optimizer step moves past one would stay
    there. Here, at or beyond a bound, the gradient is dropped only if descending it leads further out.
    """
    if not torch.is_grad_enabled():
        return x.clamp(low, high)
    if x.is_cpu and low < float(x.detach().min()) and float(x.detach().max()) < high:
        return x  # the same with less host time; on a GPU the host would wait to read
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
