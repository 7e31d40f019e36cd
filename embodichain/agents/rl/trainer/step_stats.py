"""What happened in the episodes, gathered without waiting for the device at each step.

Shapes: N environments, T rollout steps, K names.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.collector import RolloutOrigin
from embodichain.agents.rl.distributed import get_ranks
from embodichain.utils.state import attributes, load_attributes

__all__ = ["EpisodeStats"]

_WINDOW = 100


class EpisodeStats:
    """Sums the steps' reward terms and metrics, and follows the episodes' returns and lengths.

    Args:
        num_envs: N.
        num_groups: sets of N environments that the rollouts come from.
    """

    def __init__(self, num_envs: int, num_groups: int = 1) -> None:
        self._num_envs = num_envs
        self._return = np.zeros(num_groups * num_envs)
        self._length = np.zeros(num_groups * num_envs, dtype=np.int64)
        self._is_whole = np.ones(num_groups * num_envs, dtype=bool)  # all of the episode's steps were seen
        self._returns: deque[float] = deque(maxlen=_WINDOW)
        self._lengths: deque[int] = deque(maxlen=_WINDOW)
        self._successes: deque[bool] = deque(maxlen=_WINDOW)
        self._step_success: list[Tensor] = []
        self._names: list[str] = []
        self._sums: Tensor | None = None

    def on_step(self, step: TensorDict, info: dict[str, Any]) -> None:
        """Take in one step; nothing is read by the host."""
        named = [("rewards", info["rewards"]), ("metrics", info["metrics"])]
        self._step_success.append(info["success"])
        # Of a chunk of actions, [N, H], the sum over the steps that were executed: the others are 0.
        columns = [value if value.dim() == 1 else value.sum(1) for _, group in named for value in group.values()]
        if not columns:
            return
        values = torch.stack(columns, dim=0).to(torch.float32)
        if self._sums is None:
            self._names = [f"{kind}/{name}" for kind, group in named for name in group]
            self._sums = torch.zeros_like(values)
        self._sums += values

    def drop_unfinished(self) -> None:
        """Forget the episodes that are going on: the environments were reset, and nobody will see their ends."""
        self._return.fill(0.0)
        self._length.fill(0)
        self._is_whole.fill(True)

    def state_dict(self) -> dict[str, Any]:
        """Return what the next rollouts' figures depend on, between two rollouts."""
        return attributes(self, exclude=("_step_success", "_names", "_sums"))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take what ``state_dict`` returned."""
        load_attributes(self, state)

    def finish_rollout(self, rollout: TensorDict) -> dict[str, float]:
        """Follow the episodes through a rollout [N, T + 1] whose steps were taken in, or that has their ``figures``.

        Where its ``origin`` says that steps before it were left out, the episodes that these belong to do not count.

        Returns:
            Of all processes that share the training: ``rewards/<term>`` and ``metrics/<name>``, means over its steps;
            ``charts/episode_reward_avg_100``, ``charts/episode_length_avg_100`` and ``charts/success_rate_avg_100``,
            over the last 100 episodes that ended, once there are any.
        """
        if "figures" in rollout.keys():  # noqa: SIM118 (a TensorDict, not a dict)
            self._take_figures(rollout["figures"][:, :-1])
        origin = rollout["origin"] if "origin" in rollout.keys() else RolloutOrigin(0, 0, continues=True)  # noqa: SIM118
        rows = slice(origin.group * self._num_envs, (origin.group + 1) * self._num_envs)
        returns, lengths, is_whole = (x[rows] for x in (self._return, self._length, self._is_whole))
        if not origin.continues:
            is_whole.fill(False)
        num_steps = len(self._step_success)
        reward = rollout["reward"][:, :num_steps].cpu().numpy()
        made = np.ones(reward.shape[:2], dtype=np.int64)  # environment steps of each step
        if reward.ndim > 2:
            reward, made = reward.sum(2), rollout["executed"][:, :num_steps].sum(2).cpu().numpy()
        done = rollout["done"][:, :num_steps].cpu().numpy()
        success = torch.stack(self._step_success, dim=1).cpu().numpy()
        ended_at: list[tuple[int, list[float], list[int], list[bool]]] = []  # step; returns, lengths, successes
        for t in range(num_steps):
            returns += reward[:, t]
            lengths += made[:, t]
            ended = done[:, t]
            if ended.any():
                counted = ended & is_whole
                figures = returns[counted].tolist(), lengths[counted].tolist(), success[counted, t].tolist()
                ended_at.append((t, *figures))
                returns[ended] = 0.0
                lengths[ended] = 0
                is_whole[ended] = True
        scalars: dict[str, float] = {}
        sums: list[float] = []
        if self._sums is not None:
            sums = self._sums.sum(dim=1).tolist()
            self._sums.zero_()
        shared = get_ranks().gather_data((ended_at, sums, int(made.sum())))
        # By their steps, and at one step by rank: as they would have ended in a single process.
        for _, own_returns, own_lengths, successes in sorted(
            (e for each, *_ in shared for e in each), key=lambda e: e[0]
        ):
            self._returns.extend(own_returns)
            self._lengths.extend(own_lengths)
            self._successes.extend(successes)
        columns, count = zip(*(own_sums for _, own_sums, _ in shared), strict=True), sum(own for *_, own in shared)
        scalars |= {name: sum(column) / count for name, column in zip(self._names, columns, strict=True)}
        if self._returns:
            scalars["charts/episode_reward_avg_100"] = float(np.mean(self._returns))
            scalars["charts/episode_length_avg_100"] = float(np.mean(self._lengths))
            scalars["charts/success_rate_avg_100"] = float(np.mean(self._successes))
        self._step_success.clear()
        return scalars

    def _take_figures(self, figures: TensorDict) -> None:
        """Take in the steps of a rollout that somebody else followed: ``figures`` [N, T] of ``StepFigures``."""
        self._step_success = list((figures["success"] > 0).unbind(1))
        self._names = [str(name) for name in figures.keys() if name != "success"]  # noqa: SIM118
        if self._names:
            self._sums = torch.stack([figures[name].sum(dim=1) for name in self._names])
