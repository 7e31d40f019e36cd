"""Counter-based randomness: a draw is a function of its purpose, not of earlier draws.

Every number is a hash of (seed, stream, draw, stream id, episode, tick), so environment i draws the same numbers
whatever the number of environments or the order of resets, and a checkpoint needs only the counters.

Shapes: N environments, n in ``env_ids``.
"""

import hashlib
import math
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

# splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): increment and finaliser.
# As signed 64-bit numbers, since torch has no arithmetic for unsigned ones: 0x9E3779B97F4A7C15 and so on.
_GOLDEN = -0x61C8864680B583EB
# Two more odd constants (xxHash64's second and third primes) keep stream ids and episode numbers apart.
_STREAM = -0x3D4D51C2D82B14B1  # 0xC2B2AE3D27D4EB4F
_EPISODE = 0x165667B19E3779F9
_MIX1 = -0x40A7B892E31B1A47  # 0xBF58476D1CE4E5B9
_MIX2 = -0x6B2FB644ECCEEE15  # 0x94D049BB133111EB
# Arrays are mixed as unsigned numbers, with logical shifts. Constants of the same type: NumPy would look for the
# type of a Python number in each operation, which takes longer than the operation on the few numbers of a draw.
_U1, _U2 = (np.array(factor, np.int64).view(np.uint64) for factor in (_MIX1, _MIX2))
_U27, _U30, _U31, _U40 = (np.array(shift, np.uint64) for shift in (27, 30, 31, 40))
_TO_UNIT = 1.0 / (1 << 24)  # 24 bits to [0, 1)

Ints = TypeVar("Ints", Tensor, np.ndarray)


def _mix(x: Ints) -> Ints:
    """Splitmix64's finaliser on int64, with wrapping products."""
    if isinstance(x, np.ndarray):
        u = x.view(np.uint64)
        u = (u ^ (u >> _U30)) * _U1
        u = (u ^ (u >> _U27)) * _U2
        return (u ^ (u >> _U31)).view(np.int64)
    x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * _MIX1  # the masks make the shifts logical
    x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * _MIX2
    return x ^ ((x >> 31) & 0x1FFFFFFFF)


def _fast(x: Tensor | float) -> Any:
    """Return a NumPy view of a tensor on the CPU: the same numbers in a third of the time on arrays of this size."""
    return Tensor.numpy(x) if isinstance(x, Tensor) and x.is_cpu else x


def _unit_bits(x: Any) -> Any:
    """Return 24 mixed bits of int64 as float32: all that it holds below 1, so that 1.0 cannot come out by rounding."""
    if isinstance(x, Tensor):
        return ((_mix(x) >> 40) & 0xFFFFFF).to(torch.float32)
    return (_mix(x).view(np.uint64) >> _U40).astype(np.float32)


class CounterRandom:
    """The random streams of N environments.

    Attributes:
        seed: seed of the whole run; ranks share it.
        stream_ids: [N] int64, (global env id) // ``group_size``; environments that share an id share all draws.
        episode: [N] int64, the episode number of each environment; counts up at each reset.
    """

    state_names = ("seed", "stream_ids", "episode", "_key", "_enumerate", "_stride", "_draw")

    def __init__(
        self, seed: int, num_envs: int, device: torch.device | str = "cpu", first_id: int = 0, group_size: int = 1
    ) -> None:
        self.seed = seed
        self.stream_ids = torch.arange(first_id, first_id + num_envs, device=device) // group_size
        self.episode = torch.full((num_envs,), -1, dtype=torch.int64, device=device)
        self._key = torch.zeros_like(self.stream_ids)
        self._enumerate = False
        self._stride = num_envs
        self._num_envs = num_envs
        self._first_id = first_id
        self._group_size = group_size
        self._stream = ""
        self._draw = 0
        self._tick: int | Tensor = 0
        self._update_keys(slice(None))  # draws before the first episode differ between environments, too

    def reseed(self, seed: int, enumerate_episodes: bool = False, share: tuple[int, int] = (0, 1)) -> None:
        """Start again before the first episode of another seed.

        Args:
            enumerate_episodes: number the episodes of all environments through, i, i + N, i + 2N, ... for environment
                i, so that the first E episodes are the same set whatever N is, as an evaluation needs. No two
                environments share an episode then, in groups or not.
            share: (r, W), only with ``enumerate_episodes``: take the numbers r, r + W, r + 2W, ... alone.
        """
        self.seed, self._draw = seed, 0
        self._enumerate = enumerate_episodes
        self.episode.fill_(-1)
        ids = torch.arange(self._num_envs, device=self.stream_ids.device) + self._first_id
        if enumerate_episodes:
            first, stride = share
            self._stride = self._num_envs * stride
            self.stream_ids.copy_(first + ids * stride - self._stride)
            self.episode.zero_()
        else:
            self.stream_ids.copy_(ids // self._group_size)
        self._update_keys(slice(None))

    @property
    def enumerates_episodes(self) -> bool:
        """Whether an evaluation numbers the episodes of all environments through: each is a fixed one by its number."""
        return self._enumerate

    def align_groups(self) -> None:
        """Set the episode number of all members of a group to the group's largest.

        Members with episodes ended at different times have different numbers. After this and ``next_episode`` for all
        they draw the same again, and numbers that none of them has drawn before.
        """
        episode = self.episode.view(-1, self._group_size)
        episode.copy_(episode.amax(dim=1, keepdim=True))

    def next_episode(self, env_ids: Tensor) -> None:
        """Begin the next episode in environments [n]."""
        ids = _fast(env_ids)
        counter, step = (self.stream_ids, self._stride) if self._enumerate else (self.episode, 1)
        _fast(counter)[ids] += step
        self._update_keys(ids)

    def _update_keys(self, ids: Any) -> None:
        stream_ids, episode, key = map(_fast, (self.stream_ids, self.episode, self._key))
        key[ids] = _mix(stream_ids[ids] * _STREAM + episode[ids] * _EPISODE)

    def stream(self, name: str, tick: int | Tensor = 0) -> "_Stream":
        """Draw from the named stream, usually the term's name, inside the block; the managers open one for each term.

        The tick counts repeated uses of the stream inside one episode (interval events), for all or for each [N] int64.
        """
        return _Stream(self, name, tick)

    def turn_to(self, name: str) -> None:
        """Draw from another stream in the rest of the block of :meth:`stream`, at the same tick."""
        self._stream, self._draw = name, 0

    def uniform(self, env_ids: Tensor, low: Tensor | float, high: Tensor | float, size: int) -> Tensor:
        """Return numbers uniform in [low, high), [n, size] float32; bounds are numbers or [size]."""
        # The episode's key is mixed already: the rest is splitmix64's sequence from a start of its own.
        key, ids = _fast(self._key), env_ids
        if not isinstance(key, Tensor):
            ids, low, high = map(_fast, (env_ids, low, high))
        starts = _starts(self.seed, self._stream, self._draw, size, key.device if isinstance(key, Tensor) else None)
        self._draw += 1
        keys = key[ids][:, None] + _fast(self._ticks(env_ids))
        values = low + _unit_bits(keys + starts) * ((high - low) * _TO_UNIT)
        return values if isinstance(values, Tensor) else torch.from_numpy(values)

    def normal(self, env_ids: Tensor, size: int) -> Tensor:
        """Return standard normal numbers, [n, size] float32 (Box-Muller)."""
        u = self.uniform(env_ids, 0.0, 1.0, 2 * size)
        radius = torch.sqrt(-2.0 * torch.log1p(-u[:, :size]))
        return radius * torch.cos(2.0 * math.pi * u[:, size:])

    def _ticks(self, env_ids: Tensor) -> Tensor | int:
        """Return the tick's summand for the keys, [n, 1] or a number."""
        if isinstance(self._tick, Tensor):
            return self._tick[env_ids, None] * _MIX1
        return (self._tick * _MIX1 + (1 << 63)) % (1 << 64) - (1 << 63)  # as signed 64-bit numbers wrap


class _Stream:
    """Draws from a stream inside a block. A class, since a generator takes five times as long, at every term."""

    __slots__ = ("_now", "_previous", "_random")

    def __init__(self, random: CounterRandom, name: str, tick: int | Tensor) -> None:
        self._random = random
        self._now = name, 0, tick

    def __enter__(self) -> None:
        random = self._random
        self._previous = random._stream, random._draw, random._tick
        random._stream, random._draw, random._tick = self._now

    def __exit__(self, *error: object) -> None:
        random = self._random
        random._stream, random._draw, random._tick = self._previous


@lru_cache(maxsize=4096)  # outside all streams no draw is repeated
def _starts(seed: int, stream: str, number: int, size: int, device: torch.device | None) -> Any:
    """Return the starts of a draw's sequences, for all environments and episodes, [size] int64; on no device: NumPy."""
    digest = hashlib.blake2b(f"{seed}/{stream}/{number}".encode(), digest_size=8).digest()
    starts = np.arange(1, size + 1) * _GOLDEN + int.from_bytes(digest, "little", signed=True)
    return starts if device is None else torch.from_numpy(starts).to(device)
