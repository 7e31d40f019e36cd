"""What happened in the control steps of a chunk of actions.

Legend: N environments, H actions of a chunk.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["ChunkRecord"]

_AT_THE_END = ("success", "fail", "elapsed_steps")


class ChunkRecord:
    """Gathers the control steps of a chunk; of an environment whose episode has ended, nothing more.

    Args:
        num_envs: N.
        length: H.
        device: of the environments.

    Attributes:
        alive: [N] bool, whose episode has not ended in the chunk.
        reward: [N, H] float32; 0 where nothing was executed.
        executed: [N, H] bool, which control steps were made.
        terminated, truncated: [N] bool, what ended an episode in the chunk.
        has_diverged: whether physics became invalid in the chunk.
    """

    def __init__(self, num_envs: int, length: int, device: torch.device) -> None:
        self.alive = torch.ones(num_envs, dtype=torch.bool, device=device)
        self.reward = torch.zeros(num_envs, length, device=device)
        self.executed = torch.zeros(num_envs, length, dtype=torch.bool, device=device)
        self.terminated = torch.zeros_like(self.alive)
        self.truncated = torch.zeros_like(self.alive)
        self.has_diverged = False
        self._columns: dict[str, dict[str, Tensor]] = {"rewards": {}, "metrics": {}}  # [N, H] by name
        self._info: dict[str, Any] = {}

    def add(
        self, step: int, reward: Tensor, terminated: Tensor, truncated: Tensor, info: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        """Take in a control step.

        Args:
            step: its number, from 0.
            reward, terminated, truncated, info: as of the step, before any reset.

        Returns:
            The reward and which episodes it ended, [N] both, of the environments that made the step.
        """
        alive = self.alive
        reward, terminated, truncated = reward.masked_fill(~alive, 0.0), terminated & alive, truncated & alive
        self.reward[:, step], self.executed[:, step] = reward, alive
        self.terminated, self.truncated = self.terminated | terminated, self.truncated | truncated
        for kind, columns in self._columns.items():
            for name, value in info[kind].items():
                if name not in columns:
                    columns[name] = torch.zeros_like(self.executed, dtype=value.dtype)
                columns[name][:, step] = value.masked_fill(~alive, 0)
        self._info = self._merge(info)
        done = terminated | truncated
        self.alive = alive & ~done
        return reward, done

    def info(self) -> dict[str, Any]:
        """Return the last step's ``info``, with what differs where an episode had ended by then as it was at its end.

        ``rewards`` and ``metrics`` are [N, H] by name, and ``executed`` is there too.
        """
        return self._info | self._columns | {"executed": self.executed}

    def _merge(self, info: dict[str, Any]) -> dict[str, Any]:
        before, alive = self._info, self.alive
        if before:
            info = info | {name: torch.where(alive, info[name], before[name]) for name in _AT_THE_END}
        if "diverged" in info:
            self.has_diverged = True
        if "diverged" in info and "diverged" in before:
            now = info["diverged"] & alive
            states = {
                name: torch.where(now.reshape(-1, *[1] * (value.dim() - 1)), value, before["state_before"][name])
                for name, value in info["state_before"].items()
            }
            return info | {"diverged": before["diverged"] | now, "state_before": states}
        kept = {name: before[name] for name in ("diverged", "state_before") if name in before}
        return info | kept
