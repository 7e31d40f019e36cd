"""Diverged physics: the step's results for these environments, and the log.

Shapes: N environments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.sim.backend import Backend
from embodichain.utils import logger


class DivergenceLog:
    """Counts the episodes that end because physics or action became invalid; warns at the 1st, 10th, 100th, ..."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._count = torch.zeros((), dtype=torch.int64, device=backend.device)
        self._warn_at = 1

    @property
    def count(self) -> int:
        """Number of divergences; reading it waits for the device."""
        return int(self._count)

    def handle(self, diverged: Tensor, reward: Tensor, info: dict[str, Any]) -> Tensor:
        """Count diverged environments [N] bool, zero their rewards, metrics and success, and return the reward [N]."""
        self._count = self._count + diverged.sum()
        if not self._backend.is_asynchronous:
            ids = diverged.nonzero().squeeze(1).tolist()
            self._warn(f"environments {ids[:8]}{'...' if len(ids) > 8 else ''}")
        info["success"] = info["success"] & ~diverged
        for values in (info["rewards"], info["metrics"]):
            values |= {name: value.masked_fill(diverged, 0.0) for name, value in values.items()}
        return reward.masked_fill(diverged, 0.0)

    def report(self) -> None:
        """Log the backend's problems, and on a GPU the count; this waits for the device."""
        for problem in self._backend.report():
            logger.log_warning(problem)
        if self._backend.is_asynchronous:
            self._warn("some environments")

    def state_dict(self) -> dict[str, Any]:
        """Return the counts, for a checkpoint."""
        return {"count": self._count, "warn_at": self._warn_at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of :meth:`state_dict`."""
        self._count = state.get("count", self._count).to(self._count.device)
        self._warn_at = state.get("warn_at", self._warn_at)

    def _warn(self, where: str) -> None:
        count = self.count
        if count >= self._warn_at:
            logger.log_warning(f"physics or action invalid in {where}: their episodes end and reset ({count} so far)")
            while self._warn_at <= count:
                self._warn_at *= 10


def finite_observation(obs: TensorDict) -> TensorDict:
    """Return an observation with numbers in place of NaN and infinity."""
    finite = obs.apply(torch.nan_to_num)
    assert finite is not None  # an empty observation cannot be
    return finite
