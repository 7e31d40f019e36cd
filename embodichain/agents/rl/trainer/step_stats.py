"""Metrics of a training's steps and episodes, with one host sync a rollout.

Shapes: N environments, T rollout steps, K names.
"""

from collections import deque
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.buffer.layout import RolloutOrigin, env_steps
from embodichain.agents.rl.distributed import get_process_group
from embodichain.utils.state import declared_state, load_attributes

_WINDOW = 100

_Ended = tuple[int, list[float], list[int], list[bool]]
"""A step; the returns, lengths and successes of the episodes that ended there."""


def _sums(info: TensorDict, made: Tensor) -> dict[str, tuple[float, float]]:
    """Return reward terms and metrics summed over a rollout's steps, and the number of steps that have each.

    The host reads them at once.

    Args:
        made: environment steps of each step of the rollout, [N, T].
    """
    names = [str(name) for name in info.keys() if "/" in str(name)]  # noqa: SIM118 (a TensorDict, not a dict)
    if not names:
        return {}
    steps = torch.stack([info[name].transpose(0, 1) for name in names], dim=1)[:-1]  # [T, K, N]
    can_lack = torch.tensor([name.startswith("metrics/") for name in names], device=steps.device)
    lacks = steps.isnan() & can_lack[:, None]
    steps = steps.masked_fill(lacks, 0.0)
    sums = torch.zeros_like(steps[0])
    for step in steps:
        sums += step
    counts = made.sum() - (lacks * made.t()[:, None]).sum(dim=(0, 2))
    found = torch.stack([sums.sum(dim=1).double(), counts.double()]).tolist()
    return {name: (total, count) for name, total, count in zip(names, *found, strict=True)}


def clipped_share(actions: Tensor, space: spaces.Space[Any]) -> float:
    """Return the share of the components of actions [..., A] beyond the bounds of a Box, where they are clipped.

    The Box is of one environment, [A], or of all, [N, A]. A policy of which most actions are clipped learns nothing.
    """
    assert isinstance(space, spaces.Box)
    bounds = (bound.reshape(-1, actions.shape[-1])[0] for bound in (space.low, space.high))
    low, high = (torch.as_tensor(bound, device=actions.device) for bound in bounds)
    # Squashed actions may exceed a bound by rounding.
    return float(((actions < low - 1e-6 * low.abs()) | (actions > high + 1e-6 * high.abs())).float().mean())


class EpisodeStats:
    """Sums the steps' reward terms and metrics, and follows the episodes' returns and lengths.

    Args:
        num_env_sets: sets of N environments that the rollouts come from.
    """

    state_names = ("_return", "_length", "_is_whole", "_returns", "_lengths", "_successes")

    def __init__(self, num_envs: int, num_env_sets: int = 1) -> None:
        self._num_envs = num_envs
        self._return = np.zeros(num_env_sets * num_envs)
        self._length = np.zeros(num_env_sets * num_envs, dtype=np.int64)
        self._is_whole = np.ones(num_env_sets * num_envs, dtype=bool)  # the episode was seen from its start
        self._returns: deque[float] = deque(maxlen=_WINDOW)
        self._lengths: deque[int] = deque(maxlen=_WINDOW)
        self._successes: deque[bool] = deque(maxlen=_WINDOW)

    def drop_unfinished(self) -> None:
        """Drop the unfinished episodes, after the environments were reset."""
        self._return.fill(0.0)
        self._length.fill(0)
        self._is_whole.fill(True)

    def state_dict(self) -> dict[str, Any]:
        """Return the state between two rollouts."""
        return declared_state(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state of ``state_dict``."""
        load_attributes(self, state)

    def finish_rollout(self, rollout: TensorDict, has_success: bool = True) -> dict[str, float]:
        """Add a rollout [N, T + 1]; episodes with steps missing before it (``origin``) do not count.

        Args:
            has_success: the environments know whether an episode is a success.

        Returns:
            Of all processes that share the training: ``rewards/<term>`` and ``metrics/<name>``, means over its steps,
            for a metric over the processes that have it;
            ``charts/episode_reward_avg_100``, ``charts/episode_length_avg_100`` and, with ``has_success``,
            ``charts/success_rate_avg_100``, over the last 100 episodes that ended, once there are any.
        """
        info, made = rollout["info"], env_steps(rollout)
        sums = _sums(info, made)
        origin = rollout["origin"] if "origin" in set(rollout.keys()) else RolloutOrigin()
        ended = self._follow(rollout, made, info["success"], origin)
        shared = get_process_group().gather_data((ended, sums, has_success))
        # By their steps, and at one step by rank: as they would have ended in a single process.
        in_order = sorted((e for each, *_ in shared for e in each), key=itemgetter(0))
        for _, own_returns, own_lengths, successes in in_order:
            self._returns.extend(own_returns)
            self._lengths.extend(own_lengths)
            self._successes.extend(successes)
        scalars: dict[str, float] = {}
        for name in {name: None for _, own, _ in shared for name in own}:
            totals, counts = zip(*(own[name] for _, own, _ in shared if name in own), strict=True)
            if sum(counts):
                scalars[name] = sum(totals) / sum(counts)
        if self._returns:
            scalars["charts/episode_reward_avg_100"] = float(np.mean(self._returns))
            scalars["charts/episode_length_avg_100"] = float(np.mean(self._lengths))
            if any(known for *_, known in shared):
                scalars["charts/success_rate_avg_100"] = float(np.mean(self._successes))
        return scalars

    def _follow(self, rollout: TensorDict, made: Tensor, success: Tensor, origin: RolloutOrigin) -> list[_Ended]:
        """Return the whole episodes that ended in a rollout."""
        rows = slice(origin.env_set * self._num_envs, (origin.env_set + 1) * self._num_envs)
        returns, lengths, is_whole = (x[rows] for x in (self._return, self._length, self._is_whole))
        if not origin.continues:
            is_whole.fill(False)
        reward, done = (rollout[name][:, :-1].cpu().numpy() for name in ("reward", "done"))
        if reward.ndim > 2:
            reward = reward.sum(2)
        steps, successes = made.cpu().numpy(), success.cpu().numpy()
        found: list[_Ended] = []
        for t in range(reward.shape[1]):
            returns += reward[:, t]
            lengths += steps[:, t]
            ended = done[:, t]
            if ended.any():
                own = ended & is_whole
                found.append((t, returns[own].tolist(), lengths[own].tolist(), successes[own, t].tolist()))
                returns[ended] = 0.0
                lengths[ended] = 0
                is_whole[ended] = True
        return found
