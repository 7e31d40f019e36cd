"""What happened in each episode of an evaluation, by name. Shapes: N environments, E episodes, K names."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["EpisodeTable"]


class EpisodeTable:
    """Keeps a row for each of E episodes.

    Attributes:
        num_ended: how many of them have ended.
    """

    def __init__(self, num_episodes: int) -> None:
        self.num_ended = 0
        self._num_episodes = num_episodes
        self._names: list[str] = []
        self._sums: Tensor | None = None  # [K, N], of the episodes under way
        self._rows: Tensor | None = None  # [K, E]
        self._ends: Tensor | None = None  # [metrics, E], at the last step

    def on_step(self, reward: Tensor, info: dict[str, Any], done: Tensor, episode: Tensor) -> None:
        """Take in one step.

        Args:
            reward: [N]; of a chunk of actions [N, H], as the entries of ``info``, which then has ``executed``.
            info: see ``VecEnv.step``.
            episode: numbers of the episodes that the environments play, [N] int64; those from E on do not count.
        """
        metrics = info["metrics"]
        columns = {"return": reward, "length": info.get("executed", torch.ones_like(reward))}
        columns |= {f"rewards/{name}": value for name, value in info["rewards"].items()}
        columns |= {f"metrics/{name}": value for name, value in metrics.items()}
        values = torch.stack([_summed(value) for value in columns.values()])
        if self._sums is None:
            self._names = list(columns)
            self._sums = torch.zeros_like(values)
            self._rows = values.new_zeros(len(columns) + 1, self._num_episodes)
            self._ends = values.new_zeros(len(metrics), self._num_episodes)
        assert self._rows is not None
        assert self._ends is not None
        self._sums += values
        ended = (done & (episode < self._num_episodes)).nonzero().squeeze(1)
        rows = episode[ended]
        self.num_ended += len(rows)
        self._rows[:-1, rows] = self._sums[:, ended]
        self._rows[-1, rows] = info["success"][ended].double()
        if metrics:
            last = {name: _last(value, info) for name, value in metrics.items()}
            self._ends[:, rows] = torch.stack([value[ended].double() for value in last.values()])
        self._sums[:, done] = 0.0

    def results(self) -> Tensor:
        """Return success, return and length of each episode, [3, E] float64 on the CPU; 0 of those not played here."""
        if self._rows is None:
            return torch.zeros(3, self._num_episodes, dtype=torch.float64)
        return self._rows[[-1, 0, 1]].cpu()

    def columns(self) -> dict[str, np.ndarray]:
        """Return the columns by name, float64 [E] each.

        ``success`` (0 or 1), ``return``, ``length`` (steps), ``rewards/<term>`` (the episode's sum of the weighted
        term), ``metrics/<name>`` (its mean over the episode's steps) and ``metrics/<name> at the end`` (at its last).
        """
        assert self._rows is not None
        assert self._ends is not None
        rows, ends = self._rows.cpu().numpy(), self._ends.cpu().numpy()
        table = dict(zip(self._names, rows[:-1], strict=True))
        metrics = [name for name in self._names if name.startswith("metrics/")]
        table |= {name: table[name] / table["length"] for name in metrics}
        table |= {f"{name} at the end": end for name, end in zip(metrics, ends, strict=True)}
        return {"success": rows[-1], **table}


def _summed(value: Tensor) -> Tensor:
    """Return the sum over a chunk's steps, of which those that were not made are 0, or the one step's value: [N]."""
    return value.double() if value.dim() == 1 else value.double().sum(dim=1)


def _last(value: Tensor, info: dict[str, Any]) -> Tensor:
    """Return a value at the last step that was made, [N]."""
    if value.dim() == 1:
        return value
    at = info["executed"].sum(dim=1, keepdim=True) - 1
    return value.gather(1, at.clamp(min=0)).squeeze(1)
