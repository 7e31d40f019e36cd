"""Rewards, metrics and success in the ``info`` of other libraries' environments. Legend: N envs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

SUCCESS_KEYS = ("is_success", "success")
"""Entries of ``info`` that say whether an episode is a success."""
_REWARDS = ("reward_terms/", "rewards/")


def numbers_of(info: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, bool | float]]:
    """Yield the numbers and flags in one environment's ``info`` by name; keys of nested dicts are joined by slashes."""
    for key, value in info.items():
        if isinstance(value, Tensor):
            value = value.numpy(force=True)
        if isinstance(value, Mapping):
            yield from numbers_of(value, f"{prefix}{key}/")
        elif isinstance(value, bool | np.bool_):
            yield f"{prefix}{key}", bool(value)
        elif isinstance(value, int | float | np.number):
            yield f"{prefix}{key}", float(value)
        elif isinstance(value, np.ndarray) and value.size == 1:
            yield from numbers_of({f"{prefix}{key}": value.item()})


class InfoReader:
    """Reads the infos of N environments.

    The names of rewards and metrics stay the same from one ``begin`` to the next; later ones join then.

    Attributes:
        knows_success: an info has said by now whether an episode is a success.
    """

    def __init__(self, num_envs: int) -> None:
        self.knows_success = False
        self._num_envs = num_envs
        self._found: dict[str, bool] = {}  # whether each is a flag
        self._names: dict[str, bool] | None = None

    def begin(self) -> None:
        """Begin a rollout or an evaluation."""
        self._names = dict(self._found) or None

    def read(self, infos: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``success`` [N] bool, and ``rewards`` and ``metrics`` [N] by name.

        Missing rewards are 0, missing metrics NaN, missing flags and success False.

        Args:
            infos: arrays [N] by name, each with a mask ``_<name>`` [N] bool unless all environments have it.
        """
        columns = {name: value for name, value in infos.items() if f"_{name}" in infos or not name.startswith("_")}
        said = [columns.pop(key) for key in SUCCESS_KEYS if key in columns]
        self.knows_success |= bool(said)
        success = torch.zeros(self._num_envs, dtype=torch.bool)
        for values in said:
            success |= torch.from_numpy(values > 0.0)
        self._found |= {name: values.dtype == np.bool_ for name, values in columns.items() if name not in self._found}
        if self._names is None and columns:
            self._names = dict(self._found)
        rewards: dict[str, Tensor] = {}
        metrics: dict[str, Tensor] = {}
        for name, is_flag in (self._names or {}).items():
            kind = next((kind for kind in _REWARDS if name.startswith(kind)), None)
            values = np.full(self._num_envs, 0.0 if kind or is_flag else np.nan, bool if is_flag else np.float32)
            if name in columns:
                given = infos.get(f"_{name}", slice(None))
                values[given] = columns[name][given]
            (metrics if kind is None else rewards)[name.removeprefix(kind or "")] = torch.from_numpy(values)
        return {"success": success, "rewards": rewards, "metrics": metrics}
