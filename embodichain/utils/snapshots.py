"""Plain data as it was at some time, to be put back: all of it, or the rows of some of many environments.

What plain data are is said in :mod:`~embodichain.utils.state`. Shapes: N environments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

__all__ = ["Snapshot"]


class Snapshot:
    """A copy of plain data.

    Objects keep their identity: what is put back goes into the tensors, arrays, lists and dictionaries that there were,
    so that whoever else refers to them (a view, another object's attribute) sees it, too.

    Args:
        value: the data.
        of_rows: N: only rows are wanted, for :meth:`with_rows_of`; what cannot have any is not copied.
    """

    def __init__(self, value: Any, of_rows: int | None = None) -> None:
        self._root = _take(value, {}, of_rows)

    def copy(self) -> Any:
        """Return the data as they were, in the snapshot's own objects."""
        return self._root.copied()

    def restore(self) -> Any:
        """Make the data what they were, and return them."""
        return self._root.restored()

    def with_rows_of(self, now: Any, mask: Tensor, done: dict[Any, Any] | None = None) -> Any:
        """Return the data as they are now, but with the rows of other environments than a mask's as they were.

        Rows belong to tensors and arrays [N, ...] of one shape then and now, wherever they are; what was [1, ...] then
        counts as N equal rows. All else is as it is now.

        Args:
            now: the data, in which rows are put back.
            mask: [N] bool.
            done: what several snapshots have put back so far; one dictionary for all of them.
        """
        return self._root.merged(now, mask, {} if done is None else done)


class _Value:
    """What never changes by itself: a number, a text, None."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def copied(self) -> Any:
        return self._value

    def restored(self) -> Any:
        return self._value

    def merged(self, now: Any, mask: Tensor, done: dict[Any, Any]) -> Any:
        return now


class _Tensor(_Value):
    def __init__(self, value: Tensor, of_rows: int | None) -> None:
        super().__init__(value)
        # A row for all environments is only replaced by one for each, never written into.
        self._copy = value if of_rows not in (None, len(value)) else value.detach().clone()
        self._version = None if value.is_inference() else value._version

    def copied(self) -> Any:
        return self._copy

    def restored(self) -> Any:
        if self._has_changed():
            self._value.copy_(self._copy)
        return self._value

    def merged(self, now: Any, mask: Tensor, done: dict[Any, Any]) -> Any:
        if not isinstance(now, Tensor) or not _are_rows(now.shape, self._copy.shape, len(mask)):
            return now
        if now is self._value and not self._has_changed():
            return now
        key = id(self._value), id(now)
        if key not in done:
            rows = mask.reshape(-1, *[1] * (now.dim() - 1))
            merged = torch.where(rows, now, self._copy.to(now.dtype))
            # The original comes along, since only what is there keeps its id.
            done[key] = now, now.copy_(merged) if now is self._value else merged
        return done[key][1]

    def _has_changed(self) -> bool:
        if _is_compared(self._value):
            return not torch.equal(self._value, self._copy)
        return self._version is None or self._version != self._value._version


class _Array(_Value):
    def __init__(self, value: np.ndarray) -> None:
        super().__init__(value)
        self._copy = value.copy()

    def copied(self) -> Any:
        return self._copy

    def restored(self) -> Any:
        if not np.array_equal(self._value, self._copy):
            self._value[...] = self._copy
        return self._value

    def merged(self, now: Any, mask: Tensor, done: dict[Any, Any]) -> Any:
        if not isinstance(now, np.ndarray) or not _are_rows(now.shape, self._copy.shape, len(mask)):
            return now
        if now is self._value and np.array_equal(now, self._copy):
            return now
        kept = np.where(mask.cpu().numpy().reshape(-1, *[1] * (now.ndim - 1)), now, self._copy)
        if now is not self._value:
            return kept
        now[...] = kept
        return now


class _Generator(_Value):
    def __init__(self, value: torch.Generator) -> None:
        super().__init__(value)
        self._state = value.get_state()

    def copied(self) -> Any:
        generator = torch.Generator(self._value.device)
        generator.set_state(self._state)
        return generator

    def restored(self) -> Any:
        self._value.set_state(self._state)
        return self._value


class _Sequence(_Value):
    """A list, tuple or deque."""

    def __init__(self, value: Any, parts: Sequence[_Value]) -> None:
        super().__init__(value)
        self._parts = parts

    def copied(self) -> Any:
        return _like(self._value, [part.copied() for part in self._parts])

    def restored(self) -> Any:
        return _fill(self._value, [part.restored() for part in self._parts])

    def merged(self, now: Any, mask: Tensor, done: dict[Any, Any]) -> Any:
        if type(now) is not type(self._value) or len(now) != len(self._parts):
            return now
        return _fill(now, [part.merged(value, mask, done) for part, value in zip(self._parts, now, strict=True)])


class _Mapping(_Value):
    """A dictionary or a TensorDict."""

    def __init__(self, value: Any, parts: Mapping[Any, _Value]) -> None:
        super().__init__(value)
        self._parts = parts

    def copied(self) -> Any:
        parts = {key: part.copied() for key, part in self._parts.items()}
        return self._value.empty().update(parts) if isinstance(self._value, TensorDict) else parts

    def restored(self) -> Any:
        for key in [key for key in self._value.keys() if key not in self._parts]:  # noqa: SIM118 (maybe a TensorDict)
            del self._value[key]
        for key, part in self._parts.items():
            self._value[key] = part.restored()
        return self._value

    def merged(self, now: Any, mask: Tensor, done: dict[Any, Any]) -> Any:
        if type(now) is type(self._value):
            for key in [key for key in now.keys() if key in self._parts]:  # noqa: SIM118
                now[key] = self._parts[key].merged(now[key], mask, done)
        return now


def _take(value: Any, taken: dict[int, _Value], of_rows: int | None) -> _Value:
    """Return a snapshot of data; what is one object under two names is taken once."""
    if id(value) in taken:
        return taken[id(value)]
    node: _Value
    if isinstance(value, Tensor | np.ndarray):
        if of_rows is not None and not (value.ndim and len(value) in (1, of_rows)):
            return _Value(value)
        node = _Tensor(value, of_rows) if isinstance(value, Tensor) else _Array(value)
    elif isinstance(value, torch.Generator):
        node = _Generator(value)
    elif isinstance(value, list | tuple | deque):
        node = _Sequence(value, [_take(part, taken, of_rows) for part in value])
    elif isinstance(value, dict | TensorDict):
        node = _Mapping(value, {key: _take(part, taken, of_rows) for key, part in value.items()})
    else:
        return _Value(value)
    taken[id(value)] = node
    return node


def _are_rows(now: Sequence[int], before: Sequence[int], num_envs: int) -> bool:
    return bool(now) and bool(before) and now[0] == num_envs and before[0] in (1, num_envs) and now[1:] == before[1:]


def _fill(target: Any, values: list[Any]) -> Any:
    """Return a list or deque with other values in it, or a tuple of them."""
    if isinstance(target, tuple):
        return target if all(a is b for a, b in zip(target, values, strict=False)) else _like(target, values)
    target.clear()
    target.extend(values)
    return target


def _like(target: Any, values: list[Any]) -> Any:
    """Return a new sequence of the same kind."""
    if isinstance(target, deque):
        return deque(values, target.maxlen)
    return type(target)._make(values) if hasattr(target, "_make") else type(target)(values)


def _is_compared(tensor: Tensor) -> bool:
    """Return whether a tensor's values tell if it was written to: on the CPU NumPy's writes are not counted."""
    return tensor.is_cpu
