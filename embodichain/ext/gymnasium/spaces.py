"""Gymnasium's spaces and observations as ours. Legend: N envs, A action size."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs.base_env import space_of
from embodichain.utils import CommandFailedError, ConfigError, observations
from embodichain.utils.choices import Choices

_FEW_CHANNELS, _MANY_CHANNELS = 4, 16
_SUPPORTED = "supported are Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple spaces, of numbers and of images"


@dataclass(frozen=True)
class _Leaf:
    """A part of an observation space that is no Dict or Tuple, and the keys that lead to it."""

    keys: tuple[str | int, ...]
    space: spaces.Space[Any]

    @cached_property
    def layout(self) -> tuple[tuple[int, ...] | None, Any, tuple[int, ...]]:
        """An image's axes, and the entry's type and shape."""
        return _image_axes(self.space), _dtype_of(self.space), _shape_of(self.space)


class ObservationAdapter:
    """Turns the observations of a Gymnasium space into our nested TensorDicts.

    Each part becomes an entry, under the keys of the Dicts, or the numbers of the Tuples, around it; a part without
    either is ``image`` if it is one, else ``observation``. Images of uint8 are [height, width, channels]; those with
    few channels first, grey ones and stacks of frames are brought into that order. Choices are one-hot, as Gymnasium
    flattens them. All other numbers become float32, or float64 where float32 does not hold them, and three dimensions
    of them one.

    Attributes:
        space: the structured space of one environment.
        flat_space: space of ``flatten_dict_observation``, [O].
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        leaves = _leaves(space, ())
        names = sorted(f"{name}/" for name, _ in leaves)
        if any(below.startswith(name) for name, below in pairwise(names)):
            raise ConfigError(f"its observations {names} collide: a slash in a key separates as nested Dicts do")
        self._leaves = dict(leaves)
        # Without the numbers' bounds, which mean nothing to a learner, and are wrong in some libraries.
        layouts = {name: leaf.layout for name, leaf in self._leaves.items()}
        zeros = {name: torch.from_numpy(np.zeros((1, *shape), dtype)) for name, (_, dtype, shape) in layouts.items()}
        self.space = space_of(observations.nested_observation(zeros, torch.device("cpu")))
        size = sum(part.stop - part.start for part in observations.entry_columns(self.space).values())
        self.flat_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def __call__(self, obs: Any) -> TensorDict:
        """Return observations of N environments, batched as Gymnasium does, as a TensorDict [N]; it may be a view."""
        entries = {}
        for name, leaf in self._leaves.items():
            part = obs
            for key in leaf.keys:
                part = part[key]
            entries[name] = torch.from_numpy(_values(leaf, np.asarray(part)))
        return observations.nested_observation(entries, torch.device("cpu"))


def has_images(space: spaces.Space[Any]) -> bool:
    """Return whether a supported observation space has an image."""
    return any(_image_axes(leaf.space) is not None for _, leaf in _leaves(space, ()))


def _leaves(space: spaces.Space[Any], keys: tuple[str | int, ...]) -> list[tuple[str, _Leaf]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return [leaf for key, inner in parts for leaf in _leaves(inner, (*keys, key))]
    path = "/".join(map(str, keys))
    place = f"its observation '{path}'" if path else "its observation"
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise ConfigError(f"{place} is {_kind(space)}; {_SUPPORTED}")
    is_image = _image_axes(space) is not None
    if isinstance(space, spaces.Box) and not is_image and len(space.shape) > observations.IMAGE_DIMS:
        raise ConfigError(f"{place} is a Box of shape {list(space.shape)}; {_SUPPORTED}")
    return [(path or ("image" if is_image else "observation"), _Leaf(keys, space))]


def _kind(space: spaces.Space[Any]) -> str:
    return f"a {type(space).__name__} space"


def _image_axes(space: spaces.Space[Any]) -> tuple[int, ...] | None:
    """Return an image's axes in the order height, width, others; None: it is none.

    [H, W], [H, W, C] and [C, H, W], and stacks of K frames in front of them. Channels, or grey frames, are first where
    there are at most 4 in an image of more pixels than that each way, or at most 16.
    """
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8:
        return None
    shape = space.shape
    if len(shape) == 4:
        return (2, 3, 0, 1) if _has_channels_first(shape[1:]) else (1, 2, 0, 3)
    if len(shape) == 3:
        return (1, 2, 0) if _has_channels_first(shape) else (0, 1, 2)
    return (0, 1) if len(shape) == 2 and min(shape) > _FEW_CHANNELS else None


def _has_channels_first(shape: tuple[int, ...]) -> bool:
    return any(shape[0] <= few < min(shape[1:]) for few in (_FEW_CHANNELS, _MANY_CHANNELS))


def _values(leaf: _Leaf, values: np.ndarray) -> np.ndarray:
    """Return a part's values [N, ...] in the entry's shape and type."""
    if (sizes := _choices(leaf.space)) is not None:
        indices = values.reshape(len(values), -1) - _first(leaf.space)
        if ((indices < 0) | (indices >= sizes)).any():
            place = "/".join(map(str, leaf.keys)) or "observation"
            raise CommandFailedError(f"its observation '{place}' is {values.tolist()}, outside {leaf.space}")
        are_chosen = [i[:, None] == np.arange(n) for n, i in zip(sizes, indices.T, strict=True)]
        return np.concatenate(are_chosen, axis=1).astype(np.float32)
    axes, dtype, shape = leaf.layout
    if axes is not None:
        values = values.transpose(0, *(axis + 1 for axis in axes))
    return np.asarray(values, dtype=dtype).reshape(len(values), *shape)


def _choices(space: spaces.Space[Any]) -> list[int] | None:
    """Return the numbers of possibilities of a discrete space with finitely many; None of another."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(n) for n in space.nvec.reshape(-1)]
    return None


def action_sizes(space: spaces.Space[Any]) -> list[int] | None:
    """Return the numbers of possibilities of the components of discrete actions; None of others."""
    return [2] * int(np.prod(space.shape)) if isinstance(space, spaces.MultiBinary) else _choices(space)


def _first(space: spaces.Space[Any]) -> Any:
    """Return the first possibility of each component, with a dimension less than it has."""
    return np.reshape(getattr(space, "start", 0), -1)


def _dtype_of(space: spaces.Space[Any]) -> Any:
    if _image_axes(space) is not None:
        return np.uint8
    is_held = _choices(space) is not None or np.can_cast(np.dtype(space.dtype), np.float32)
    return np.float32 if is_held else np.float64


def _shape_of(space: spaces.Space[Any]) -> tuple[int, ...]:
    """Return the entry's shape: an entry of three dimensions would be an image, which is no part of the vector."""
    if (sizes := _choices(space)) is not None:
        return (sum(sizes),)
    shape = space.shape
    assert shape is not None
    if (axes := _image_axes(space)) is not None:
        height, width, *channels = (shape[axis] for axis in axes)
        return (height, width, int(np.prod(channels)))
    return (int(np.prod(shape)),) if len(shape) >= observations.IMAGE_DIMS else shape


class ActionAdapter:
    """Turns our actions [N, A] into actions of a Gymnasium space, within its bounds.

    Attributes:
        space: action space of one environment, [A] float32; ``Choices`` of a discrete one.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        self._own = space
        sizes = action_sizes(space)
        if sizes is not None:
            self.space: spaces.Box = Choices(sizes)
            return
        if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
            what = f"a Box of {space.dtype}" if isinstance(space, spaces.Box) else _kind(space)
            raise ConfigError(
                f"its action is {what}; supported are Discrete, MultiDiscrete and MultiBinary spaces, and Box spaces "
                "of floating-point numbers"
            )
        self.space = spaces.Box(
            space.low.astype(np.float32).reshape(-1), space.high.astype(np.float32).reshape(-1), dtype=np.float32
        )

    def __call__(self, action: torch.Tensor) -> np.ndarray:
        """Return actions [N, A] as an array [N, ...] of the space's type and shape, clipped to its bounds."""
        own, values = self._own, action.cpu().numpy()
        if isinstance(self.space, Choices):
            indices = np.clip(np.rint(values), 0, self.space.high).astype(own.dtype) + _first(own).astype(own.dtype)
            return indices.reshape(len(indices), *(own.shape or ()))
        assert isinstance(own, spaces.Box)
        # Of its own type: a float32 bound may lie beyond the float64 one.
        clipped = np.minimum(np.maximum(values.reshape(-1, *own.shape), own.low), own.high)
        return clipped.astype(own.dtype, copy=False)


SUCCESS_KEYS = ("is_success", "success")
"""Entries of ``info`` that say whether an episode is a success."""
_REWARDS = ("reward_terms/", "rewards/")

Numbers = dict[str, bool | float]
"""Numbers and flags of one environment's ``info`` by name; keys of nested dicts are joined by slashes."""


def numbers_of(info: Mapping[str, Any], prefix: str = "") -> Numbers:
    """Return the numbers and flags in an ``info``."""
    found: Numbers = {}
    for key, value in info.items():
        if isinstance(value, float):  # the most frequent, np.float64 among them
            found[f"{prefix}{key}"] = value
        elif isinstance(value, Mapping):
            found |= numbers_of(value, f"{prefix}{key}/")
        elif isinstance(value, bool | np.bool_):
            found[f"{prefix}{key}"] = bool(value)
        elif isinstance(value, int | np.number):
            found[f"{prefix}{key}"] = float(value)
        elif isinstance(value, np.ndarray | Tensor) and math.prod(value.shape) == 1:
            found |= numbers_of({f"{prefix}{key}": value.item()})
    return found


def columns_of(rows: Sequence[Numbers]) -> dict[str, np.ndarray]:
    """Return the numbers of N environments by name, [N] each; missing numbers are NaN, missing flags False."""
    names: Mapping[str, Any] = rows[0]
    if any(row.keys() != names.keys() for row in rows):
        names = {name: value for row in rows for name, value in row.items()}
        missing = {name: False if isinstance(value, bool) else math.nan for name, value in names.items()}
        rows = [missing | row for row in rows]
    return {name: np.array([row[name] for row in rows]) for name in names}


class InfoReader:
    """Makes the ``info`` of N environments.

    The names of rewards and metrics stay the same from one ``begin`` to the next, and later ones join then; in an
    evaluation they join at once. A number that is not there is NaN, a flag False.

    Attributes:
        knows_success: an info has said by now whether an episode is a success.
    """

    def __init__(self, num_envs: int) -> None:
        self.knows_success = False
        self._num_envs = num_envs
        self._found: dict[str, bool] = {}  # whether it is a flag
        self._names: tuple[str, ...] | None = None  # None: the next info decides
        self._joins = False

    def begin(self, is_evaluation: bool = False) -> None:
        """Begin a rollout or an evaluation."""
        self._names, self._joins = tuple(self._found) or None, is_evaluation

    def read(self, columns: dict[str, np.ndarray] | None) -> dict[str, Any]:
        """Return ``success`` [N] bool, and ``rewards`` and ``metrics`` [N] by name.

        Args:
            columns: as :func:`columns_of` returns them; the entries of success are removed. None: a reset's, which
                has no numbers.
        """
        success = np.zeros(self._num_envs, dtype=np.bool_)
        is_step, columns = columns is not None, columns or {}
        for values in [columns.pop(key) for key in SUCCESS_KEYS if key in columns]:
            self.knows_success = True
            success |= values > 0.0
        self._found |= {name: values.dtype == np.bool_ for name, values in columns.items()}
        if is_step and (self._names is None or self._joins):
            self._names = tuple(self._found)
        rewards: dict[str, Tensor] = {}
        metrics: dict[str, Tensor] = {}
        for name in self._names or ():
            if name in columns:
                values = columns[name]
            else:
                values = np.full(self._num_envs, False if self._found[name] else np.nan)
            value = torch.from_numpy(values if values.dtype == np.bool_ else values.astype(np.float32))
            if name.startswith(_REWARDS):
                rewards[name.partition("/")[2]] = value.nan_to_num(nan=0.0)
            else:
                metrics[name] = value
        return {"success": torch.from_numpy(success), "rewards": rewards, "metrics": metrics}
