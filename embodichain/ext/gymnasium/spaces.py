"""Gymnasium's spaces and observations as ours. Legend: N envs, A action size."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor

from embodichain.utils import ConfigError, observations

_FEW_CHANNELS = 4
_SUPPORTED = "supported are Box and Dict spaces, of numbers and of images [height, width, channels]"


@dataclass(frozen=True)
class _Leaf:
    """A Box of an observation space, and the keys that lead to it."""

    keys: tuple[str, ...]
    space: spaces.Box


class ObservationAdapter:
    """Turns the observations of a Gymnasium space into our nested TensorDicts.

    Each Box becomes an entry, under the keys of the Dicts around it; a Box without a Dict is ``image`` if it is one,
    else ``observation``. Images, [height, width, channels] of uint8, stay as they are; all other numbers become
    float32, or float64 where float32 does not hold them, and three dimensions of them one.

    Attributes:
        space: the structured space of one environment.
        flat_space: of ``flatten_dict_observation``, [O].
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        leaves = _leaves(space, ())
        names = sorted(f"{name}/" for name, _ in leaves)
        if any(below.startswith(name) for name, below in pairwise(names)):
            raise ConfigError(f"its observations {names} collide: a slash in a key separates as nested Dicts do")
        self._leaves = dict(leaves)
        self.space = _nested({name: _our_box(leaf.space) for name, leaf in self._leaves.items()})
        size = sum(part.stop - part.start for part in observations.entry_columns(self.space).values())
        self.flat_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def __call__(self, obs: Any) -> TensorDict:
        """Return observations of N environments, batched as Gymnasium does, as a TensorDict [N] of copies."""
        entries = {}
        for name, leaf in self._leaves.items():
            part = obs
            for key in leaf.keys:
                part = part[key]
            values = np.array(part, dtype=_dtype_of(leaf.space))
            entries[name] = torch.from_numpy(values.reshape(len(values), *_shape_of(leaf.space)))
        return observations.nested_observation(entries, torch.device("cpu"))


def has_images(space: spaces.Space[Any]) -> bool:
    """Return whether a supported observation space has an image."""
    return any(_is_image(leaf.space) for _, leaf in _leaves(space, ()))


def _leaves(space: spaces.Space[Any], keys: tuple[str, ...]) -> list[tuple[str, _Leaf]]:
    if isinstance(space, spaces.Dict):
        return [leaf for key, inner in space.spaces.items() for leaf in _leaves(inner, (*keys, key))]
    place = f"its observation '{'/'.join(keys)}'" if keys else "its observation"
    if not isinstance(space, spaces.Box):
        raise ConfigError(f"{place} is {_kind(space)}; {_SUPPORTED}")
    if len(space.shape) > observations.IMAGE_DIMS:
        raise ConfigError(f"{place} is a Box of shape {list(space.shape)}; {_SUPPORTED}")
    if _is_image(space) and space.shape[0] <= _FEW_CHANNELS < min(space.shape[1:]):
        raise ConfigError(f"{place} is an image of shape {list(space.shape)}, with its channels first; {_SUPPORTED}")
    name = "/".join(keys) or ("image" if _is_image(space) else "observation")
    return [(name, _Leaf(keys, space))]


def _kind(space: spaces.Space[Any]) -> str:
    return f"a {type(space).__name__} space"


def _is_image(space: spaces.Box) -> bool:
    return len(space.shape) == observations.IMAGE_DIMS and space.dtype == np.uint8


def _dtype_of(space: spaces.Box) -> Any:
    if _is_image(space):
        return np.uint8
    return np.float32 if np.can_cast(space.dtype, np.float32) else np.float64


def _shape_of(space: spaces.Box) -> tuple[int, ...]:
    """Return the entry's shape: an entry of three dimensions would be an image, which is no part of the vector."""
    is_flattened = len(space.shape) == observations.IMAGE_DIMS and not _is_image(space)
    return (int(np.prod(space.shape)),) if is_flattened else space.shape


def _our_box(space: spaces.Box) -> spaces.Box:
    if _is_image(space):
        return space
    # Bounds of numbers mean nothing to a learner; those of some libraries' are wrong.
    return spaces.Box(-np.inf, np.inf, _shape_of(space), _dtype_of(space))


def _nested(boxes: Mapping[str, spaces.Box]) -> spaces.Dict:
    """Return the boxes by slash-separated name as nested Dicts."""
    groups: dict[str, dict[str, spaces.Box]] = {}
    found: dict[str, spaces.Space[Any]] = {}
    for name, box in boxes.items():
        group, slash, rest = name.partition("/")
        if slash:
            groups.setdefault(group, {})[rest] = box
        else:
            found[name] = box
    return spaces.Dict(found | {group: _nested(inner) for group, inner in groups.items()})


class ActionAdapter:
    """Turns our actions [N, A] into those of a Gymnasium space, within its bounds.

    Attributes:
        space: of one environment, [A] float32.
    """

    def __init__(self, space: spaces.Space[Any]) -> None:
        if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
            what = f"a Box of {space.dtype}" if isinstance(space, spaces.Box) else _kind(space)
            raise ConfigError(f"its action is {what}; supported are Box spaces of floating-point numbers")
        self._own = space
        self.space = spaces.Box(
            space.low.astype(np.float32).reshape(-1), space.high.astype(np.float32).reshape(-1), dtype=np.float32
        )

    def __call__(self, action: torch.Tensor) -> np.ndarray:
        """Return actions [N, A] as an array [N, ...] of the space's type and shape, clipped to its bounds."""
        own = self._own
        # Of its own type: a float32 bound may lie beyond the float64 one.
        values = action.cpu().numpy().astype(own.dtype).reshape(-1, *own.shape)
        return np.clip(values, own.low, own.high)


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

    The names of rewards and metrics stay the same from one ``begin`` to the next; later ones join then.

    Attributes:
        knows_success: an info has said by now whether an episode is a success.
    """

    def __init__(self, num_envs: int) -> None:
        self.knows_success = False
        self._num_envs = num_envs
        self._found: dict[str, None] = {}
        self._names: tuple[str, ...] = ()

    def begin(self) -> None:
        """Begin a rollout or an evaluation."""
        self._names = tuple(self._found)

    def read(self, columns: dict[str, np.ndarray]) -> dict[str, Any]:
        """Return ``success`` [N] bool, and ``rewards`` and ``metrics`` [N] by name.

        Args:
            columns: as :func:`columns_of` returns them; the entries of success are removed.
        """
        success = torch.zeros(self._num_envs, dtype=torch.bool)
        for values in [columns.pop(key) for key in SUCCESS_KEYS if key in columns]:
            self.knows_success = True
            success |= torch.from_numpy(values > 0.0)
        self._found |= dict.fromkeys(columns)
        self._names = self._names or tuple(self._found)
        rewards: dict[str, Tensor] = {}
        metrics: dict[str, Tensor] = {}
        for name in self._names:
            values = columns.get(name, np.full(self._num_envs, np.nan))
            value = torch.from_numpy(values if values.dtype == np.bool_ else values.astype(np.float32))
            term = next((name.removeprefix(kind) for kind in _REWARDS if name.startswith(kind)), None)
            if term is None:
                metrics[name] = value
            else:
                rewards[term] = value.nan_to_num(nan=0.0)
        return {"success": success, "rewards": rewards, "metrics": metrics}
