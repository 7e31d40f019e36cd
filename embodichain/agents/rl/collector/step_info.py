"""Writes a step's ``info`` and the final observations into the rollout; the host reads nothing.

Legend: N envs, T rollout steps, K names.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor


def _columns(info: dict[str, Any]) -> dict[str, Tensor]:
    """Return success, reward terms and metrics of a step by name, [N] each; none without "success"."""
    if "success" not in info:
        return {}
    named = {f"{kind}/{name}": value for kind in ("rewards", "metrics") for name, value in info[kind].items()}
    # Of a chunk of actions, [N, H], the sum over the steps that were executed: the others are 0.
    return {"success": info["success"]} | {n: v if v.dim() == 1 else v.sum(1) for n, v in named.items()}


class StepInfo:
    """Fills ``info`` of one rollout (see ``buffer/layout.py``) from the steps' ``info``."""

    def __init__(self, rollout: TensorDict) -> None:
        self._rollout = rollout
        self._num_envs, self._num_slots = rollout.batch_size
        self._names: list[str] = []
        self._slots: tuple[Tensor, ...] = ()  # T+1 of [K, N]
        self._block: Tensor | None = None  # [T+1, K, N]
        self._diverged: Tensor | None = None  # [T+1, N]
        if "info" in rollout.keys():  # noqa: SIM118 (a TensorDict, not a dict)
            del rollout["info"]

    def write(self, t: int, info: dict[str, Any]) -> None:
        """Store the ``info`` of step ``t``; steps in order."""
        columns = _columns(info)
        if columns:
            if self._block is None:
                self._begin(columns)
            torch.stack(list(columns.values()), out=self._slots[t])
        if "diverged" in info:
            if self._diverged is None:
                shape = self._num_slots, self._num_envs
                self._diverged = torch.zeros(shape, dtype=torch.bool, device=info["diverged"].device)
            self._diverged[t] = info["diverged"]

    def finish(self) -> None:
        """Write the stored steps into the rollout; slot T is 0."""
        batch_size, device = self._rollout.batch_size, self._rollout.device
        fields: dict[str, Tensor] = {}
        if self._block is not None:
            self._block[-1] = 0.0
            fields = dict(zip(self._names, self._block.permute(1, 2, 0).unbind(0), strict=True))
            fields["success"] = fields["success"] > 0
        if self._diverged is not None:
            fields["diverged"] = self._diverged.transpose(0, 1)
        if fields:
            self._rollout["info"] = TensorDict(fields, batch_size, device=device)

    def _begin(self, columns: dict[str, Tensor]) -> None:
        self._names = list(columns)
        device = columns["success"].device
        self._block = torch.empty(self._num_slots, len(columns), self._num_envs, device=device)
        self._slots = self._block.unbind(0)


class FinalSlots:
    """Fills the fields of a rollout [N, T+1] that only truncated steps have; they are 0 in all others."""

    def __init__(self, rollout: TensorDict) -> None:
        rollout["final_value"].zero_()
        self._values = rollout["final_value"].transpose(0, 1).unbind(0)
        self._inputs: dict[Any, tuple[Tensor, ...]] = {}  # by key
        if "final" in rollout.keys():  # noqa: SIM118 (a TensorDict, not a dict)
            final = rollout["final"].zero_()
            for key in final.keys(include_nested=True, leaves_only=True):
                self._inputs[key] = final[key].transpose(0, 1).unbind(0)

    def write(self, t: int, cut: Tensor, given: TensorDict, value: Tensor, is_rows: bool) -> None:
        """Write the policy's input and value into slot ``t`` of the rows ``cut`` [N]; ``is_rows``: for these alone."""
        columns = [(self._values[t], value), *((slots[t], given[key]) for key, slots in self._inputs.items())]
        for slot, values in columns:
            if is_rows:
                slot[cut] = values
            else:
                slot.copy_(torch.where(cut.reshape(-1, *[1] * (slot.dim() - 1)), values, torch.zeros_like(slot)))
