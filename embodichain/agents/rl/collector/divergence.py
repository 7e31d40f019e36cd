"""Episodes that ended because the physics became invalid: how many, where, and after what.

Legend: N envs, T rollout steps, n those concerned.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

__all__ = ["MAX_DIVERGENCE_RATE", "WINDOW", "Divergences"]

MAX_DIVERGENCE_RATE = 1e-3  # divergences per environment step of an iteration above which a run warns
WINDOW = 10  # steps before a divergence that are kept


class Divergences:
    """Gathers divergences on the device, and is read once an iteration. In a step without any it does nothing."""

    def __init__(self) -> None:
        self._step = 0
        self._count: Tensor | None = None  # [N] int64
        self._last: dict[str, Tensor] = {}  # of each environment's last divergence, [N, ...]

    def on_step(self, info: dict[str, Any]) -> None:
        """Take in a step's ``info``; nothing is read by the host."""
        diverged: Tensor | None = info.get("diverged")
        self._step += 1
        if diverged is None:
            return
        now = {"slot": torch.full_like(diverged, self._step - 1, dtype=torch.int64), **info.get("state_before", {})}
        if self._count is None:
            self._count = torch.zeros_like(diverged, dtype=torch.int64)
            self._last = {name: torch.zeros_like(value) for name, value in now.items()}
        self._count += diverged
        for name, value in now.items():
            which = diverged.reshape(-1, *[1] * (value.dim() - 1))
            self._last[name] = torch.where(which, value, self._last[name])

    def take(self, rollout: TensorDict) -> tuple[int, dict[str, Tensor]]:
        """Return what happened in a rollout [N, T+1] whose steps were taken in, and begin anew.

        Returns:
            How many divergences there were, and of the environments concerned ``env_ids`` [n], ``count`` [n], the
            ``slot`` [n] of the rollout in which each diverged last, what the environment told of its state before that
            step, [n, ...] by name, and ``obs`` [n, WINDOW, O] and ``action`` [n, WINDOW, ...] of the steps up to that
            one, of which the last ``window`` [n] are of this rollout and the others 0.
        """
        count, last = self._count, self._last
        self._step, self._count, self._last = 0, None, {}
        total = 0 if count is None else int(count.sum())
        if count is None or not total:
            return 0, {}
        env_ids = count.nonzero().squeeze(1)
        record = {"env_ids": env_ids, "count": count[env_ids]} | {name: value[env_ids] for name, value in last.items()}
        record["window"] = (record["slot"] + 1).clamp(max=WINDOW)
        slots = record["slot"].unsqueeze(1) - torch.arange(WINDOW - 1, -1, -1, device=env_ids.device)  # [n, WINDOW]
        rows, slots = env_ids.unsqueeze(1).to(rollout.device), slots.to(rollout.device)
        for name in ("obs", "action"):
            values = rollout[name][rows, slots.clamp(min=0)]
            before = (slots < 0).reshape(*slots.shape, *[1] * (values.dim() - slots.dim()))
            record[name] = values.masked_fill(before, 0.0)
        return total, record
