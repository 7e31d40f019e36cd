"""Demonstrations from a dataset or a scripted expert.

Shapes: M frames of all episodes, B minibatch, N environments, H steps of an action chunk, A action size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from tensordict import TensorDict

from embodichain.agents.rl.demonstrations.expert import ExpertEpisode, play_expert
from embodichain.agents.rl.models import RunningNormalizer
from embodichain.datasets.checks import check_finite
from embodichain.datasets.lerobot_reading import read_lerobot
from embodichain.ext.vla.gaussian_vla import IMAGE, INSTRUCTION, STATE
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.utils import ConfigError, logger
from embodichain.utils.errors import unknown_name
from embodichain.utils.instructions import encode_instructions

_OBS = "/obs"  # the flat observation among entries, none of whose names begins so


@dataclass(frozen=True)
class Demonstrations:
    """Frames of episodes, one episode after the other.

    Attributes:
        entries: of the policy's observation, by name, [M].
        action: [M, A].
        left: [M] int64, frames from this one to the end of its episode, inclusive.
        obs: [M, O] float32, the flat observation; None for policies that read entries alone.
    """

    entries: TensorDict
    action: torch.Tensor
    left: torch.Tensor
    num_episodes: int
    obs: torch.Tensor | None = None

    @property
    def num_frames(self) -> int:
        """M."""
        return len(self.left)

    @property
    def frame_bytes(self) -> int:
        """Size of a frame: its entries, action and flat observation."""
        given = self.entries.bytes() + self.action.nbytes + (0 if self.obs is None else self.obs.nbytes)
        return int(given) // self.num_frames

    def chunks(self, frames: torch.Tensor, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the next ``length`` actions from frames on, and a mask of those within the episode.

        Args:
            frames: [B] int64.

        Returns:
            ``(action [B, H, A], is_there [B, H] bool)``; beyond the end the last action is repeated.
        """
        ahead = torch.arange(length, device=frames.device)
        left = self.left[frames].unsqueeze(1)
        return self.action[frames.unsqueeze(1) + torch.minimum(ahead, left - 1)], ahead < left

    @cached_property
    def starts(self) -> torch.Tensor:
        """Positions of the episodes' first frames, [E] int64."""
        is_start = torch.ones_like(self.left, dtype=torch.bool)
        is_start[1:] = self.left[:-1] == 1
        return is_start.nonzero().squeeze(1)

    def digest(self) -> str:
        """Return a checksum of the data."""
        digest = hashlib.sha256()
        entries = (self.entries[name] for name in sorted(self.entries.keys()))
        for values in (self.left, self.action, *entries, *([] if self.obs is None else [self.obs])):
            digest.update(values.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def to(self, device: torch.device) -> Demonstrations:
        """Return the same on another device."""
        obs = None if self.obs is None else self.obs.to(device)
        action, left = self.action.to(device), self.left.to(device)
        return Demonstrations(self.entries.to(device), action, left, self.num_episodes, obs)


def from_dataset(path: str | Path, num_episodes: int, keys: Sequence[str], action_dim: int) -> Demonstrations:
    """Read demonstrations for a VLA policy from a LeRobot dataset.

    ``state`` is ``observation.state``, ``image/<camera>`` is ``observation.images.<camera>``, and the instruction is
    the episode's task.

    Args:
        num_episodes: number to read, from the first.
        keys: the entries that the policy reads.

    Raises:
        ConfigError: there is no dataset, it lacks a feature, its actions are of another size, or a number in it is not
            finite.
    """
    episodes: list[dict[str, torch.Tensor]] = []
    features = {"action": "action", STATE: "observation.state"}
    for episode in islice(read_lerobot(path), num_episodes):
        frames = {"action": torch.from_numpy(_rows(episode.frames, "action", path))}
        length = len(frames["action"])
        for key in keys:
            if key == INSTRUCTION:
                frames[key] = encode_instructions([episode.task]).repeat(length, 1)
            elif key == STATE:
                frames[key] = torch.from_numpy(_rows(episode.frames, features[STATE], path))
            else:
                name = features[key] = f"observation.images.{key.removeprefix(IMAGE)}"
                frames[key] = torch.from_numpy(_feature(episode.frames, name, path).copy())
        check_finite(frames, f"dataset: {path}: episode {len(episodes)}", features)
        episodes.append(frames)
    if not episodes:
        raise ConfigError(f"dataset: {path}: has no episodes")
    if episodes[0]["action"].shape[1] != action_dim:
        size = episodes[0]["action"].shape[1]
        raise ConfigError(f"dataset: {path}: has actions of size {size}, the environment's have {action_dim}")
    return _join(episodes, f"dataset: {path}")


def from_rollouts(rollouts: Sequence[TensorDict], place: str) -> Demonstrations:
    """Return the frames of rollouts [1, T+1] with ``obs``, ``action`` and, if the policy reads any, ``entries``."""
    episodes: list[dict[str, torch.Tensor]] = []
    for rollout in rollouts:
        steps = rollout[0, :-1]
        entries = steps.get("entries", None)
        images = {} if entries is None else entries.to_dict()
        episodes.append({**images, "action": steps["action"], _OBS: steps["obs"]})
    return _join(episodes, place)


def from_expert(
    env: EmbodiedEnv, num_episodes: int, keys: Sequence[str], seed: int, reads_flat_obs: bool = False
) -> Demonstrations:
    """Run the environment's scripted expert, and return the episodes in which it succeeds.

    Args:
        env: has ``expert_action() -> [N, A]``.
        num_episodes: number to play to their end.
        keys: the entries that the policy reads.
        reads_flat_obs: whether it reads the flat observation, too.

    Raises:
        ConfigError: there is no expert, it never succeeds, or an observation or action is not finite.
    """
    if not hasattr(env, "expert_action"):
        raise ConfigError(
            f"dataset: {type(env).__name__} has no scripted expert (a method expert_action): name a dataset instead"
        )
    episodes = play_expert(env, num_episodes, keys, seed)
    succeeded = {
        i: {**_observed(episode, keys, reads_flat_obs), "action": episode.acted["action"]}
        for i, episode in enumerate(episodes)
        if episode.is_success
    }
    if not succeeded:
        raise ConfigError(f"dataset: the scripted expert of {type(env).__name__} failed in all {num_episodes} episodes")
    place = f"dataset: the scripted expert of {type(env).__name__}"
    for i, episode in succeeded.items():
        check_finite(episode, f"{place}: episode {i}", {})
    return _join(list(succeeded.values()), place)


def _observed(episode: ExpertEpisode, keys: Sequence[str], reads_flat_obs: bool) -> dict[str, torch.Tensor]:
    """Return what the policy sees in each step of an episode, [T]."""
    before = episode.observed[:-1]  # the last one is after the last step
    entries: dict[str, torch.Tensor] = before["entries"].to_dict() if keys else {}
    return entries | ({_OBS: before["obs"]} if reads_flat_obs else {})


def _warn_of_outliers(name: str, values: torch.Tensor, lengths: Sequence[int], place: str) -> None:
    """Warn of outliers in [M, K], by the input normaliser's rule: they dominate its statistics."""
    normalizer = RunningNormalizer(values.shape[1])
    normalizer.update(values)
    found = normalizer.outliers
    if found is None:
        return
    frame, column = found.index
    episode = 0
    while frame >= lengths[episode]:
        frame -= lengths[episode]
        episode += 1
    logger.log_warning(
        f"{place}: demonstration {episode}, frame {frame}: {name}[{column}] is {found.value:.4g}, where "
        f"{found.mean:.4g} ± {found.std:.2g} is usual; {found.count} such in all. It dominates the model's input "
        "normalisation: repair or remove the episode"
    )


def _join(episodes: Sequence[dict[str, torch.Tensor]], place: str) -> Demonstrations:
    lengths = [len(frames["action"]) for frames in episodes]
    left = torch.cat([torch.arange(length, 0, -1) for length in lengths])
    joined = {name: torch.cat([frames[name] for frames in episodes]).cpu() for name in episodes[0]}
    for name in {"action", STATE, _OBS} & joined.keys():
        _warn_of_outliers(name.strip("/"), joined[name], lengths, place)
    action, obs = joined.pop("action").float(), joined.pop(_OBS, None)
    return Demonstrations(TensorDict(joined, batch_size=[len(left)]), action, left, len(episodes), obs)


def _rows(frames: dict[str, np.ndarray], name: str, path: str | Path) -> np.ndarray:
    """Return a feature as float32 [T, size]."""
    with np.errstate(over="ignore"):  # overflow becomes infinite, which check_finite reports
        values = _feature(frames, name, path).astype(np.float32)
    return values.reshape(len(values), -1)


def _feature(frames: dict[str, np.ndarray], name: str, path: str | Path) -> np.ndarray:
    if name not in frames:
        raise ConfigError(f"dataset: {path}: {unknown_name('feature', name, frames)}")
    return frames[name]
