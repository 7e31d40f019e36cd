"""Episodes to learn from in addition to one's own experience.

Shapes: M steps of E episodes, O flattened observation size, A action size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer.replay import ReplayBuffer
from embodichain.utils import ConfigError
from embodichain.utils.device import check_memory

EXPERT = "expert"
"""Names the task's scripted expert where a dataset's folder could stand."""


@dataclass(frozen=True)
class Demonstrations:
    """Episodes, each as a rollout of one environment.

    Attributes:
        episodes: rollouts [1, T+1] of any T >= 1, with the policy's ``obs`` and ``entries``, ``action``
            and, to learn from rewards, ``reward`` and ``terminated``. Slot T is the observation after the last step; if
            that step terminated the episode, it is not read.
        num_succeeded: episodes that ended with success.
    """

    episodes: Sequence[TensorDict]
    num_succeeded: int

    @property
    def num_steps(self) -> int:
        """M."""
        return sum(_num_steps(episode) for episode in self.episodes)

    def frames(self) -> TensorDict:
        """Return all steps, [M], with ``left``, the number of steps to the end of the episode, this one included."""
        steps = TensorDict.cat([episode[0, :-1] for episode in self.episodes])
        steps["left"] = torch.cat([torch.arange(_num_steps(episode), 0, -1) for episode in self.episodes])
        return steps

    def describe(self) -> str:
        """Return a line for the log."""
        line = f"{len(self.episodes)} episodes of {self.num_steps:,} steps"
        if "reward" not in self.episodes[0].keys():  # noqa: SIM118 (a TensorDict, not a dict)
            return line
        rewards = torch.cat([episode["reward"][0, :-1] for episode in self.episodes])
        return f"{line}, {self.num_succeeded} with success, rewards from {rewards.min():.4g} to {rewards.max():.4g}"

    def digest(self) -> str:
        """Return the SHA-256 of all numbers."""
        digest = hashlib.sha256()
        for episode in self.episodes:
            for key in sorted(episode.keys(include_nested=True, leaves_only=True), key=str):
                digest.update(f"{key} {list(episode[key].shape)}".encode())
                digest.update(episode[key].cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def to_data(self) -> dict[str, Any]:
        """Return all as tensors and plain data."""
        return {"episodes": [episode.to_dict() for episode in self.episodes], "num_succeeded": self.num_succeeded}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Demonstrations:
        """Return the demonstrations that :meth:`to_data` was called for."""
        episodes = [TensorDict(fields, batch_size=fields["action"].shape[:2]) for fields in data["episodes"]]
        return cls(episodes, data["num_succeeded"])

    def to_buffer(self, device: torch.device) -> ReplayBuffer:
        """Return a replay buffer on a device with all steps."""
        longest = max(self.episodes, key=_num_steps)
        # Behind the steps of each episode is the observation after the last one.
        capacity = self.num_steps + len(self.episodes)
        size = ReplayBuffer.bytes_needed(capacity, longest)
        check_memory("algorithm.cfg.demonstrations", f"the {self.num_steps:,} steps of demonstrations", size, device)
        buffer = ReplayBuffer(capacity, longest.to(device))
        for episode in self.episodes:
            buffer.add(episode)
        return buffer


def check_finite(frames: Mapping[str, torch.Tensor], place: str, names: Mapping[str, str]) -> None:
    """Check the frames of an episode, each [T, ...]: one that is not finite would make every parameter NaN.

    Args:
        names: names of the dataset's features, by key of ``frames``, for the message.
    """
    for key, values in frames.items():
        if not values.is_floating_point() or values.isfinite().all():
            continue
        frame, column = (~values.reshape(len(values), -1).isfinite()).nonzero()[0].tolist()
        value = values[frame].reshape(-1)[column].item()
        raise ConfigError(f"{place}, frame {frame}: {names.get(key, key)}[{column}] is {value}; all must be finite")


def check_share(share: float, batch_size: int) -> int:
    """Return how many transitions of a batch are of demonstrations: at least one, and not all."""
    count = round(share * batch_size)
    if not 0 < count < batch_size:
        raise ConfigError(f"algorithm.cfg.demonstration_share: {share:g} of {batch_size} are {count} transitions")
    return count


def check_digest(saved: str | None, own: str | None, source: str | None) -> None:
    """Check that a checkpoint's run has learned from the same demonstrations; ConfigError: it has not."""
    if saved != own:
        raise ConfigError(f"algorithm.cfg.demonstrations: {source}: are not those that the run has learned from")


def _num_steps(episode: TensorDict) -> int:
    return episode.batch_size[1] - 1
