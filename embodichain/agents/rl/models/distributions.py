"""Distributions of actions: normal, plain or mapped to bounds (``squash.py``), and categorical, of discrete actions.

Legend: ... any batch dimensions, A action size, H actions of a chunk, n_i possibilities of component i. A distribution
of chunks has H A components, with separate log-probabilities.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict

from embodichain.agents.rl.models.squash import LinearScale, TanhSquash

LOG_STD_RANGE = (-5.0, 2.0)  # std 0.0067 to 7.4

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


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


def sample_tanh(mean: torch.Tensor, log_std: torch.Tensor, squash: TanhSquash) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tanh(mean + std * noise) [..., A], with gradients, and its log-density [...].

    The density is of ``sample_gaussian``'s action in [-1, 1]; (u - mean) / std of the samples u is the noise itself.
    """
    noise = torch.randn_like(mean)
    raw = torch.addcmul(mean, log_std.exp(), noise)
    minus = torch.addcmul(log_std + squash.log_tanh_slope(raw), noise, noise, value=0.5).sum(-1)
    return raw.tanh(), -minus - mean.shape[-1] * _HALF_LOG_2PI


def evaluate_gaussian(
    td: TensorDict, mean: torch.Tensor, log_std: torch.Tensor, squash: LinearScale | None, chunk_length: int = 1
) -> dict[str, torch.Tensor]:
    """Return ``sample_log_prob`` and ``entropy`` [...], ``mean`` and ``log_std`` [..., A] of given actions.

    With chunks all four are [..., H, A].

    The entropy of a squashed distribution has no closed form: it is the normal distribution's plus the mean of
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


_IMPOSSIBLE = -1e8  # logit of a masked possibility: its probability is 0, and p log p stays finite


def choice_log_probs(logits: torch.Tensor, sizes: Sequence[int], mask: torch.Tensor | None = None) -> torch.Tensor:
    """Return the log-probabilities of all possibilities, side by side: [..., n_1 + ... + n_A], as the logits.

    Args:
        sizes: n_1, ..., n_A.
        mask: which possibilities there are, in the logits' shape, 0 or 1; None: all. At least one of each component.
    """
    if mask is not None:
        logits = logits.masked_fill(mask == 0, _IMPOSSIBLE)
    return torch.cat([part.log_softmax(dim=-1) for part in logits.split(list(sizes), dim=-1)], dim=-1)


def sample_choices(td: TensorDict, log_probs: torch.Tensor, sizes: Sequence[int], deterministic: bool) -> None:
    """Write ``action`` [..., A], the chosen indices as numbers, and ``sample_log_prob`` [...] into ``td``.

    Args:
        log_probs: [..., n_1 + ... + n_A], of :func:`choice_log_probs`.
        deterministic: take the most likely possibilities.
    """
    # The largest of log p + Gumbel noise is distributed as p; Gumbel noise is -log of exponential noise.
    scores = log_probs if deterministic else log_probs - torch.empty_like(log_probs).exponential_().log()
    td["action"] = torch.stack([part.argmax(dim=-1) for part in scores.split(list(sizes), dim=-1)], dim=-1).float()
    td["sample_log_prob"] = _log_prob_of_choices(log_probs, td["action"], sizes)


def evaluate_choices(td: TensorDict, log_probs: torch.Tensor, sizes: Sequence[int]) -> dict[str, torch.Tensor]:
    """Return ``sample_log_prob`` and ``entropy`` [...] of given actions, and the ``log_probs``.

    The components are independent: log-probabilities and entropies, - sum p log p, add up.
    """
    log_prob = _log_prob_of_choices(log_probs, td["action"], sizes)
    return {"sample_log_prob": log_prob, "entropy": -(log_probs.exp() * log_probs).sum(-1), "log_probs": log_probs}


def _log_prob_of_choices(log_probs: torch.Tensor, action: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Return the log-probability [...] of actions [..., A]."""
    parts = zip(log_probs.split(list(sizes), dim=-1), action.long().split(1, dim=-1), strict=True)
    return torch.cat([part.gather(-1, index) for part, index in parts], dim=-1).sum(-1)


def choice_kl(log_probs: torch.Tensor, other_log_probs: torch.Tensor) -> torch.Tensor:
    """Return KL(p || q) = sum p (log p - log q) of independent choices, in nats, by log-probabilities: [...]."""
    return (log_probs.exp() * (log_probs - other_log_probs)).sum(-1)


def bounded(x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Clamp ``x`` to [low, high], with a gradient that can pull it back inside.

    ``torch.clamp`` has no gradient beyond its bounds: a parameter that an optimizer step moves past one would stay
    there. Here, at or beyond a bound, the gradient is dropped only if descending it leads further out.
    """
    if not torch.is_grad_enabled():
        return x.clamp(low, high)
    lowest, highest = x.detach().aminmax() if x.is_cpu else (low, high)
    if low < lowest and highest < high:
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
