"""Chunks of actions from one normal distribution, whose log-probabilities stay apart.

Legend: ... any batch dimensions, H actions of a chunk, A action size. The distribution has H A components.
"""

from __future__ import annotations

import torch
from tensordict import TensorDict

from embodichain.agents.rl.models.gaussian import TanhSquash, component_entropy, component_log_prob

__all__ = ["evaluate_gaussian_chunk", "sample_gaussian_chunk"]


def sample_gaussian_chunk(
    td: TensorDict,
    mean: torch.Tensor,
    log_std: torch.Tensor,
    squash: TanhSquash | None,
    deterministic: bool,
    length: int,
) -> None:
    """Write ``action`` and ``sample_log_prob`` [..., H, A] and, with ``squash``, ``raw_action`` [..., H A] into ``td``.

    Args:
        td: of batch size [...].
        mean: [..., H A].
        log_std: [H A].
        squash: what brings the sample, then stored as ``raw_action``, into bounds; None: the actions are the sample.
        deterministic: take the mean instead of a sample.
        length: H.
    """
    raw = mean if deterministic else torch.addcmul(mean, log_std.exp(), torch.randn_like(mean))
    if squash is not None:
        td["raw_action"] = raw
    actions = raw.unflatten(-1, (length, -1))
    td["action"] = actions if squash is None else squash(actions)
    td["sample_log_prob"] = _log_prob(raw, mean, log_std, squash, length)


def evaluate_gaussian_chunk(
    td: TensorDict, mean: torch.Tensor, log_std: torch.Tensor, squash: TanhSquash | None, length: int
) -> dict[str, torch.Tensor]:
    """Return ``sample_log_prob``, ``entropy``, ``mean`` and ``log_std`` of chunks that were chosen, [..., H, A] each.

    The entropy of squashed actions is estimated as ``evaluate_gaussian`` says.

    Args:
        td: has the ``action`` [..., H, A] or, with ``squash``, the ``raw_action`` [..., H A].
        mean, log_std, squash, length: as in ``sample_gaussian_chunk``.
    """
    shape = (length, -1)
    raw = td["action"].flatten(-2) if squash is None else td["raw_action"]
    entropy = component_entropy(log_std).expand_as(mean).unflatten(-1, shape)
    if squash is not None:
        noisy = torch.addcmul(mean, log_std.exp(), torch.randn_like(mean))
        entropy = entropy + squash.log_slope(noisy.unflatten(-1, shape))
    return {
        "sample_log_prob": _log_prob(raw, mean, log_std, squash, length),
        "entropy": entropy,
        "mean": mean.unflatten(-1, shape),
        "log_std": log_std.expand_as(mean).unflatten(-1, shape),
    }


def _log_prob(
    raw: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor, squash: TanhSquash | None, length: int
) -> torch.Tensor:
    """Return log p of each component, [..., H, A]: that of the normal distribution, less log |da/du|."""
    log_prob = component_log_prob(raw, mean, log_std).unflatten(-1, (length, -1))
    return log_prob if squash is None else log_prob - squash.log_slope(raw.unflatten(-1, (length, -1)))
