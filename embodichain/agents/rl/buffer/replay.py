"""A ring of past steps, from which off-policy algorithms sample, and demonstrations to learn from in addition.

Legend: N envs, T rollout steps, M steps of demonstrations, C slots of an environment's ring, W slots of the window that
is sampled, B batch, n steps of a return, O flattened observation size, A action size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.buffer.rollout_buffer import select_rows
from embodichain.utils import ConfigError, logger
from embodichain.utils.device import check_memory, format_size

EXPERT = "expert"
"""Names the task's scripted expert where a dataset's folder could stand."""

_OBSERVED = ("obs", "entries")
_OF_A_STEP = ("action", "reward", "terminated")
_STORED = (*_OBSERVED, *_OF_A_STEP)


class ReplayBuffer:
    """The latest steps of N environments, in preallocated storage on one device.

    Each environment has a ring of C slots. A step takes one slot: its observation, action, reward, and whether it
    terminated the episode. The observation after it is in the next slot, so each is stored once. Where an
    episode was truncated, its final observation takes a slot of its own, which is no step. The slot at the head holds
    the observation after the newest step: the next rollout's first step completes it. If the next rollout begins with
    another observation, because the environment was reset in between, the slot stays a final observation.

    Steps are sampled from the last W slots before the head. The other slots have room for one more rollout: a
    checkpoint of the state before the latest rollout can still be written after that one was added.

    Episodes that are no rollout, such as demonstrations, are added as rollouts of one environment, one after another.

    Args:
        capacity: slots of all environments together: W is ``capacity`` / N, rounded up, and at least 2.
        rollout: one as ``add`` takes them, of the largest T; gives N, shapes, dtypes and device. Its values are not
            read.
    """

    def __init__(self, capacity: int, rollout: TensorDict) -> None:
        num_envs, num_rollout_slots = rollout.batch_size
        self.num_envs = num_envs
        self.device = rollout["obs"].device
        self._max_steps = num_rollout_slots - 1
        self._window = max(2, -(-capacity // num_envs))
        # The rollout that takes most begins after a reset and is truncated at each step, which then takes two slots:
        # 1 + 2 T. One more is the head.
        self._num_slots = self._window + 2 * self._max_steps + 2
        num_rows = num_envs * self._num_slots
        # Row n C + s is slot s of environment n.
        fields = rollout.select(*_STORED, strict=False).items(include_nested=True, leaves_only=True)
        slots = {key: self._zeros(num_rows, values.shape[2:], values.dtype) for key, values in fields}
        self._slots = TensorDict(slots, [num_rows])
        self._is_step = self._zeros(num_rows, (), torch.bool)
        # Slots of an environment's steps, its k-th step in column k % C: steps are drawn from these.
        self._step_slots = self._zeros(num_envs, (self._num_slots,), torch.int32)
        self._num_added = 0  # steps of each environment so far
        self._head = self._zeros(num_envs, (), torch.int64)  # slots written so far, [N]
        self._num_dropped = self._zeros(num_envs, (), torch.int64)  # steps that have left the window, [N]

    @classmethod
    def allocate(cls, capacity: int, rollout: TensorDict) -> ReplayBuffer:
        """Return an algorithm's buffer; log its size, which must fit the memory; arguments as of the constructor."""
        size = cls.bytes_needed(capacity, rollout)
        what = f"the {capacity:,} transitions of the replay buffer"
        check_memory("algorithm.cfg.replay_capacity", what, size, rollout["obs"].device)
        logger.log_info(f"replay buffer: {capacity:,} transitions, {format_size(size)} when full")
        return cls(capacity, rollout)

    @classmethod
    def bytes_needed(cls, capacity: int, rollout: TensorDict) -> int:
        """Return the size of the storage of a buffer with these arguments."""
        buffer = cls(capacity, rollout.to("meta"))  # of which nothing is allocated
        counts = (buffer._is_step, buffer._step_slots, buffer._head, buffer._num_dropped)
        return buffer._slots.bytes() + sum(values.nbytes for values in counts)

    @property
    def num_steps(self) -> int:
        """Number of steps that are sampled, over all environments."""
        return self.num_envs * self._num_added - int(self._num_dropped.sum())

    @property
    def num_added(self) -> int:
        """Number of steps so far, over all environments; also steps that have left the window."""
        return self.num_envs * self._num_added

    def add(self, rollout: TensorDict) -> None:
        """Copy a rollout's steps; the host does not wait for the device.

        Args:
            rollout: [N, T+1], with ``obs``, ``entries`` if the buffer has them, ``action``, ``reward`` and
                ``terminated``; and, if it may have truncated episodes, ``truncated`` and ``final``.
        """
        num_steps = rollout.batch_size[1] - 1
        assert num_steps <= self._max_steps
        positions = self._positions(rollout)
        index = self._rows_of(positions)
        if "truncated" in rollout.keys():  # noqa: SIM118 (a TensorDict, not a dict)
            # Behind every step: where it was not truncated, the next slot overwrites it below.
            behind = self._rows_of(positions[:, :-1] + 1)
            self._write(behind, rollout["final"].select(*_OBSERVED, strict=False)[:, :-1])
            self._clear(behind.flatten())
        self._write(index, rollout.select(*_STORED, strict=False))
        self._is_step.index_fill_(0, index[:, :-1].flatten(), True)
        self._clear(index[:, -1])
        columns = torch.arange(self._num_added, self._num_added + num_steps, device=self.device) % self._num_slots
        self._step_slots[:, columns] = (positions[:, :-1] % self._num_slots).int()
        self._num_added += num_steps
        self._advance(positions[:, -1])

    def sample(self, batch_size: int, n_steps: int, gamma: float) -> TensorDict:
        """Draw steps uniformly, with replacement, by torch's global generator; the host does not wait for the device.

        The return of n steps is R = r_0 + gamma r_1 + ... + gamma^(k-1) r_(k-1): k is n, or less where the episode ends
        or the newest observation is reached. It is followed by gamma^k times the value of the observation after it.

        Returns:
            [B]: ``obs`` [B, O], ``entries`` if the buffer has them, ``action`` [B, A], ``reward`` R [B], ``discount``
            [B], gamma^k or, after a termination, 0, and ``next`` with ``obs`` and ``entries`` after the k steps, of
            another episode where ``discount`` is 0.
        """
        envs, slots = self._draw(batch_size)
        ahead = torch.arange(n_steps + 1, device=self.device)
        rows = self._rows_of(slots.unsqueeze(1) + ahead, envs.unsqueeze(1))  # [B, n+1]
        is_step, terminated = self._is_step[rows[:, :-1]], self._slots["terminated"][rows[:, :-1]]
        # Step j counts if it is one, and all before it are steps and did not terminate.
        follows = torch.cat((torch.ones_like(is_step[:, :1]), ~terminated[:, :-1]), dim=1)
        counts = (is_step & follows).cumprod(dim=1).bool()  # [B, n]
        powers = (gamma ** ahead.double()).float()
        num_counted = counts.sum(dim=1)
        is_over = (counts & terminated).any(dim=1)
        batch = select_rows(self._slots.select(*_OBSERVED, "action", strict=False), rows[:, 0])
        rewards = self._slots["reward"][rows[:, :-1]]
        batch["reward"] = torch.where(counts, powers[:-1] * rewards, 0.0).sum(dim=1)
        batch["discount"] = torch.where(is_over, 0.0, powers[num_counted])
        behind = rows.gather(1, num_counted.unsqueeze(1)).squeeze(1)
        batch["next"] = select_rows(self._slots.select(*_OBSERVED, strict=False), behind)
        return batch

    @property
    def slot_bytes(self) -> int:
        """Size of a slot in the result of ``read``."""
        return sum(values[0].nbytes for values in self._fields().values())

    def state_dict(self) -> dict[str, Any]:
        """Return the counts; the slots are not in it."""
        counts = {"num_added": self._num_added, "head": self._head, "num_dropped": self._num_dropped}
        return counts | {"window": self._window}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the result of ``state_dict`` of a buffer no larger, after ``write`` of the slots in its ``span``."""
        if self._window < state["window"]:
            raise ConfigError("algorithm.cfg.replay_capacity: is less than the saved replay buffer's")
        self._num_added = state["num_added"]
        self._head, self._num_dropped = state["head"].to(self.device), state["num_dropped"].to(self.device)
        first, head = self.span(state)
        self._clear(self._rows_of(head.unsqueeze(1)).flatten())
        # The saved window's steps by their numbers: in a larger buffer a segment may also have steps before it.
        positions = first.unsqueeze(1) + torch.arange(self._window, device=self.device)
        start = (head - state["window"]).unsqueeze(1)
        rows = self._rows_of(positions)
        are_steps = self._is_step[rows] & (positions >= start) & (positions < head.unsqueeze(1))
        self._is_step[rows] = are_steps
        numbers = self._num_dropped.unsqueeze(1) + are_steps.cumsum(dim=1) - 1
        envs, columns = are_steps.nonzero(as_tuple=True)
        slots = (positions % self._num_slots).int()
        self._step_slots[envs, numbers[envs, columns] % self._num_slots] = slots[envs, columns]

    def span(self, state: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the positions of the first slot of the window and of the head at the time of a state, [N] each.

        The slots between them are still there after one more rollout was added.
        """
        head: Tensor = state["head"].to(self.device)
        return (head - self._window).clamp(min=0), head

    def read(self, first: Tensor, last: Tensor) -> dict[str, Tensor]:
        """Return the slots at the positions ``first`` to ``last`` [N]: fields by name, copied to the CPU.

        The first dimension has the slots, environment by environment.
        """
        rows = self._rows_between(first, last)
        return {name: values.index_select(0, rows).cpu() for name, values in self._fields().items()}

    def write(self, first: Tensor, last: Tensor, slots: Mapping[str, Tensor]) -> None:
        """Write the result of ``read`` to its place."""
        rows = self._rows_between(first, last)
        for name, values in self._fields().items():
            values.index_copy_(0, rows, slots[name].to(self.device))

    def _fields(self) -> dict[str, Tensor]:
        """Return the storage by name, with the flags of steps."""
        names = {".".join(key) if isinstance(key, tuple) else key: key for key in self._slots.keys(True, True)}
        return {name: self._slots[key] for name, key in names.items()} | {"is_step": self._is_step}

    def _rows_between(self, first: Tensor, last: Tensor) -> Tensor:
        first, sizes = first.to(self.device), (last - first + 1).to(self.device)
        envs = torch.arange(self.num_envs, device=self.device).repeat_interleave(sizes)
        starts = sizes.cumsum(dim=0) - sizes
        positions = first[envs] + torch.arange(len(envs), device=self.device) - starts[envs]
        return self._rows_of(positions, envs)

    def _zeros(self, num_rows: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        if self.device.type != "cpu":
            return torch.zeros(num_rows, *shape, dtype=dtype, device=self.device)
        # NumPy's large zeros take memory where they are written: a short training needs little of a large buffer.
        return torch.from_numpy(np.zeros((num_rows, *shape), torch.empty(0, dtype=dtype).numpy().dtype))

    def _rows_of(self, positions: Tensor, envs: Tensor | None = None) -> Tensor:
        """Return the rows of the storage that hold positions [N, ...] of streams, by default of all environments."""
        if envs is None:
            envs = torch.arange(self.num_envs, device=self.device).unsqueeze(1)
        return envs * self._num_slots + positions % self._num_slots

    def _positions(self, rollout: TensorDict) -> Tensor:
        """Return the positions in their environments' streams of a rollout's T+1 slots, [N, T+1]."""
        terminated = rollout["terminated"][:, :-1].to(self.device)
        # A truncated step has its final observation behind it.
        sizes = torch.ones_like(terminated, dtype=torch.int64)
        if "truncated" in rollout.keys():  # noqa: SIM118
            sizes += rollout["truncated"][:, :-1].to(self.device) & ~terminated
        first = self._head + self._begins_elsewhere(rollout)
        return torch.cat((first.unsqueeze(1), first.unsqueeze(1) + sizes.cumsum(dim=1)), dim=1)

    def _begins_elsewhere(self, rollout: TensorDict) -> Tensor:
        """Return which environments do not continue from the observation at the head, [N] bool."""
        if not self._num_added:
            return torch.zeros_like(self._head, dtype=torch.bool)
        head = self._rows_of(self._head.unsqueeze(1)).squeeze(1)
        differs = torch.zeros_like(self._head, dtype=torch.bool)
        begins = rollout.select(*_OBSERVED, strict=False)[:, 0]
        for key in begins.keys(include_nested=True, leaves_only=True):
            differs |= (self._slots[key][head] != begins[key].to(self.device)).flatten(start_dim=1).any(dim=1)
        return differs

    def _write(self, rows: Tensor, values: TensorDict) -> None:
        """Write values [N, ...] into rows [N, ...] of the storage."""
        for key in values.keys(include_nested=True, leaves_only=True):
            stored = self._slots[key]
            stored.index_copy_(0, rows.flatten(), values[key].to(stored).reshape(rows.numel(), *stored.shape[1:]))

    def _clear(self, rows: Tensor) -> None:
        """Make slots [M] of mere observations: no steps."""
        for name in _OF_A_STEP:
            self._slots[name].index_fill_(0, rows, 0)
        self._is_step.index_fill_(0, rows, False)

    def _advance(self, head: Tensor) -> None:
        """Move the head to positions [N], and count the steps that leave the window."""
        old, new = ((end - self._window).clamp(min=0) for end in (self._head, head))
        leaving = old.unsqueeze(1) + torch.arange(2 * self._max_steps + 1, device=self.device)
        are_steps = self._is_step[self._rows_of(leaving)] & (leaving < new.unsqueeze(1))
        # Not in place: a state that was loaded from is not changed.
        self._num_dropped = self._num_dropped + are_steps.sum(dim=1)
        self._head = head

    def _draw(self, batch_size: int) -> tuple[Tensor, Tensor]:
        """Return environments and slots of uniformly drawn steps, [B] each."""
        sizes = self._num_added - self._num_dropped
        ends = sizes.cumsum(dim=0)
        # In float64: float32 has only 2^24 numbers below 1, fewer than a large buffer has steps.
        share = torch.rand(batch_size, dtype=torch.float64, device=self.device)
        drawn = (share * ends[-1]).long()
        envs = torch.searchsorted(ends, drawn, right=True)
        steps = self._num_dropped[envs] + drawn - (ends - sizes)[envs]
        return envs, self._step_slots[envs, steps % self._num_slots].long()


@dataclass(frozen=True)
class Demonstrations:
    """Episodes, each as a rollout of one environment."""

    episodes: Sequence[TensorDict]
    """Rollouts [1, T+1] of any T >= 1, with the policy's ``obs`` and ``entries``, ``action`` and, to learn from
    rewards, ``reward`` and ``terminated``. Slot T is the observation after the last step; if that step terminated the
    episode, it is not read."""
    num_succeeded: int
    """Episodes that ended with success."""

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
        raise ConfigError(f"algorithm.cfg.demonstrations: {source}: are not the run's")


def _num_steps(episode: TensorDict) -> int:
    return episode.batch_size[1] - 1
