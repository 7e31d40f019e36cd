"""Finds non-finite numbers in rollouts, batches and parameters.

Legend: N envs, T rollout steps; ... any shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.buffer import ROLLOUT_FIELDS

_FEW = 4
EXTREME = 1e6  # a number further from 0 than this is called extreme

_REAL_AT_THE_END = {field.name for field in ROLLOUT_FIELDS if field.is_real_at_the_end}


@dataclass(frozen=True)
class FieldStats:
    """Statistics of a field.

    Attributes:
        lowest, highest: of its finite numbers; NaN if there is none.
        bad: number of non-finite numbers.
        count: number of numbers.
    """

    name: str
    lowest: float
    highest: float
    bad: int
    count: int

    @property
    def is_extreme(self) -> bool:
        """Whether a finite number is further from 0 than ``EXTREME``."""
        return max(abs(self.lowest), abs(self.highest)) > EXTREME

    @classmethod
    def of(cls, name: str, values: torch.Tensor) -> FieldStats:
        """Return the statistics of a tensor [...]."""
        finite = values[values.isfinite()]
        low, high = (finite.min().item(), finite.max().item()) if len(finite) else (torch.nan, torch.nan)
        return cls(name, low, high, values.numel() - finite.numel(), values.numel())


@dataclass(frozen=True)
class Origin:
    """The first non-finite number of a rollout, by time.

    Attributes:
        column: its index among the field's columns; None if the field has only one.
        envs: all environments where this field is not finite at some step.
    """

    field: str
    env: int
    step: int
    column: int | None
    envs: list[int]


def describe_batch(batch: TensorDict) -> list[FieldStats]:
    """Return statistics of each floating-point field of a minibatch."""
    return [FieldStats.of(name, values) for name, values in _floats(batch)]


def describe_rollout(rollout: TensorDict) -> list[FieldStats]:
    """Return statistics of each floating-point field of a rollout [N, T+1], without the padding."""
    return [FieldStats.of(name, values) for name, values in _real_floats(rollout)]


def find_origin(rollout: TensorDict) -> Origin | None:
    """Return the first non-finite number of a rollout [N, T+1]; None if all are finite.

    Of several fields at the same step it is the one that is made first: an observation before the action that follows
    from it, the action before the reward.
    """
    order = {field.name: i for i, field in enumerate(ROLLOUT_FIELDS)}
    found: list[tuple[int, int, Origin]] = []
    for name, values in _real_floats(rollout):
        bad = ~values.reshape(*values.shape[:2], -1).isfinite()  # [N, T or T+1, columns]
        if not bad.any():
            continue
        step = int(bad.any(dim=2).any(dim=0).nonzero()[0])
        env, column = (int(i) for i in bad[:, step].nonzero()[0])
        envs = bad.any(dim=2).any(dim=1).nonzero().squeeze(1).tolist()
        origin = Origin(name, env, step, column if bad.shape[2] > 1 else None, envs)
        found.append((step, order.get(_field(name), len(order)), origin))
    return min(found, key=lambda item: item[:2])[2] if found else None


def parameters_are_finite(module: nn.Module) -> bool:
    """Return whether all parameters are finite; one host sync."""
    flags = [parameter.detach().isfinite().all() for parameter in module.parameters()]
    return not flags or bool(torch.stack(flags).all())


def non_finite_entries(module: nn.Module) -> list[str]:
    """Return the names of the first non-finite parameters, and of buffers with NaN (a mask may have -inf)."""
    bad = [name for name, value in module.named_parameters() if not value.isfinite().all()]
    bad += [name for name, value in module.named_buffers() if value.isnan().any()]
    return bad if len(bad) <= _FEW else [*bad[:_FEW], f"{len(bad) - _FEW} more"]


def _real_floats(rollout: TensorDict) -> Iterator[tuple[str, torch.Tensor]]:
    for name, values in _floats(rollout):
        yield name, values if _field(name) in _REAL_AT_THE_END else values[:, :-1]


def _field(name: str) -> str:
    return name.partition("/")[0]


def _floats(td: TensorDict) -> Iterator[tuple[str, torch.Tensor]]:
    for key, values in td.items(include_nested=True, leaves_only=True):
        if isinstance(values, torch.Tensor) and values.is_floating_point():
            yield "/".join(key) if isinstance(key, tuple) else key, values
