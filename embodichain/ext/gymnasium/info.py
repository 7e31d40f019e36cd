"""Rewards, metrics and success in the ``info`` of other libraries' environments. Legend: N envs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

SUCCESS_KEYS = ("is_success", "success")
"""Entries of ``info`` that say whether an episode is a success."""
_REWARDS = ("reward_terms/", "rewards/")

Numbers = dict[str, bool | float]
"""Numbers and flags of one environment's ``info`` by name; keys of nested dicts are joined by slashes."""


def numbers_of(info: Mapping[str, Any], prefix: str = "") -> Numbers:
    """Return the numbers and flags in an ``info``."""
    found: Numbers = {}
    for key, value in info.items():
        if isinstance(value, float):  # the most frequent, np.float64 among them
            found[f"{prefix}{key}"] = value
        elif isinstance(value, Mapping):
            found |= numbers_of(value, f"{prefix}{key}/")
        elif isinstance(value, bool | np.bool_):
            found[f"{prefix}{key}"] = bool(value)
        elif isinstance(value, int | np.number):
            found[f"{prefix}{key}"] = float(value)
        elif isinstance(value, np.ndarray | Tensor) and math.prod(value.shape) == 1:
            found |= numbers_of({f"{prefix}{key}": value.item()})
    return found


def columns_of(rows: Sequence[Numbers]) -> dict[str, np.ndarray]:
    """Return the numbers of N environments by name, [N] each; missing numbers are NaN, missing flags False."""
    names: Mapping[str, Any] = rows[0]
    if any(row.keys() != names.keys() for row in rows):
        names = {name: value for row in rows for name, value in row.items()}
        missing = {name: False if isinstance(value, bool) else math.nan for name, value in names.items()}
        rows = [missing | row for row in rows]
    return {name: np.array([row[name] for row in rows]) for name in names}


class InfoReader:
    """Makes the ``info`` of N environments.

    The names of rewards and metrics stay the same from one ``begin`` to the next; later ones join then.

    Attributes:
        knows_success: an info has said by now whether an episode is a success.
    """

    def __init__(self, num_envs: int) -> None:
        self.knows_success = False
        self._num_envs = num_envs
        self._found: dict[str, None] = {}
        self._names: tuple[str, ...] = ()

    def begin(self) -> None:
        """Begin a rollout or an evaluation."""
        self._names = tuple(self._found)

    def read(self, columns: dict[str, np.ndarray]) -> dict[str, Any]:
        """Return ``success`` [N] bool, and ``rewards`` and ``metrics`` [N] by name.

        Args:
            columns: as :func:`columns_of` returns them; the entries of success are removed.
        """
        success = torch.zeros(self._num_envs, dtype=torch.bool)
        for values in [columns.pop(key) for key in SUCCESS_KEYS if key in columns]:
            self.knows_success = True
            success |= torch.from_numpy(values > 0.0)
        self._found |= dict.fromkeys(columns)
        self._names = self._names or tuple(self._found)
        rewards: dict[str, Tensor] = {}
        metrics: dict[str, Tensor] = {}
        for name in self._names:
            values = columns.get(name, np.full(self._num_envs, np.nan))
            value = torch.from_numpy(values if values.dtype == np.bool_ else values.astype(np.float32))
            term = next((name.removeprefix(kind) for kind in _REWARDS if name.startswith(kind)), None)
            if term is None:
                metrics[name] = value
            else:
                rewards[term] = value.nan_to_num(nan=0.0)
        return {"success": success, "rewards": rewards, "metrics": metrics}
