"""Plain data as it was at some time, to be put back: all of it, or the rows of some of many environments.

What plain data are is said in :mod:`~embodichain.utils.state`. Shapes: N environments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor


class _Copy(NamedTuple):
    """A tensor's values, and how often it was written to; None where torch does not count that."""

    values: Tensor
    version: int | None


class Snapshot:
    """A copy of plain data.

    Objects keep their identity: what is put back goes into the tensors, arrays, lists and dictionaries that there were,
    so that a view or another object's attribute sees it, too.

    Args:
        value: the data.
        of_rows: N: only rows are wanted, for :meth:`with_rows_of`; what cannot have any is not copied.
    """

    def __init__(self, value: Any, of_rows: int | None = None) -> None:
        self._root = value
        self._contents: dict[int, tuple[Any, Any]] = {}  # by id: the object, and its content then
        self._save(value, of_rows)

    def copy(self) -> Any:
        """Return the data as they were, in the snapshot's own objects."""
        return self._copied(self._root)

    def restore(self) -> Any:
        """Make the data what they were, and return them."""
        for value, content in self._contents.values():
            _put(value, content)
        return self._root

    def with_rows_of(self, now: Any, mask: Tensor, done: dict[Any, Any] | None = None) -> Any:
        """Return the data as they are now, but with the rows of other environments than a mask's as they were.

        Rows belong to tensors and arrays [N, ...] of one shape then and now, wherever they are; what was [1, ...] then
        counts as N equal rows. All else is as it is now.

        Args:
            now: the data, in which rows are put back.
            mask: [N] bool.
            done: what several snapshots have put back so far; one dictionary for all of them.
        """
        return self._merged(self._root, now, mask, {} if done is None else done)

    def _save(self, value: Any, of_rows: int | None) -> None:
        if id(value) in self._contents:
            return
        content = _content(value, of_rows)
        if content is None:
            return
        self._contents[id(value)] = value, content
        if isinstance(content, list | dict):
            for part in content.values() if isinstance(content, dict) else content:
                self._save(part, of_rows)

    def _copied(self, value: Any) -> Any:
        _, content = self._contents.get(id(value), (None, None))
        if isinstance(content, _Copy):
            return content.values
        if isinstance(value, torch.Generator):
            generator = torch.Generator(value.device)
            generator.set_state(content)
            return generator
        if isinstance(content, list):
            return _like(value, [self._copied(part) for part in content])
        if isinstance(content, dict):
            parts = {key: self._copied(part) for key, part in content.items()}
            return value.empty().update(parts) if isinstance(value, TensorDict) else parts
        return value if content is None else content

    def _merged(self, before: Any, now: Any, mask: Tensor, done: dict[Any, Any]) -> Any:
        _, content = self._contents.get(id(before), (None, None))
        if isinstance(content, _Copy):
            return _merged_tensor(before, content, now, mask, done)
        if isinstance(content, np.ndarray):
            return _merged_array(before, content, now, mask)
        if isinstance(content, list) and type(now) is type(before) and len(now) == len(content):
            parts = [self._merged(then, part, mask, done) for then, part in zip(content, now, strict=True)]
            if isinstance(now, tuple):
                return now if all(a is b for a, b in zip(now, parts, strict=True)) else _like(now, parts)
            now.clear()
            now.extend(parts)
        if isinstance(content, dict) and type(now) is type(before):
            for key in [key for key in now.keys() if key in content]:  # noqa: SIM118 (maybe a TensorDict)
                now[key] = self._merged(content[key], now[key], mask, done)
        return now


def _content(value: Any, of_rows: int | None) -> Any:
    """Return what an object holds: a copy of numbers, and lists and dictionaries of its parts; None: nothing."""
    if isinstance(value, Tensor | np.ndarray):
        if of_rows is not None and not (value.ndim and len(value) in (1, of_rows)):
            return None
        if isinstance(value, np.ndarray):
            return value.copy()
        # A row for all environments is only replaced by one for each, never written into.
        values = value if of_rows not in (None, len(value)) else value.detach().clone()
        return _Copy(values, None if value.is_inference() else value._version)
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, list | tuple | deque):
        return list(value)
    return dict(value.items()) if isinstance(value, dict | TensorDict) else None


def _put(value: Any, content: Any) -> None:
    """Give an object the content that it had."""
    if isinstance(content, _Copy):
        if _has_changed(value, content):
            value.copy_(content.values)
    elif isinstance(value, np.ndarray):
        if not np.array_equal(value, content):
            value[...] = content
    elif isinstance(value, torch.Generator):
        value.set_state(content)
    elif isinstance(value, dict | TensorDict):
        for key in [key for key in value.keys() if key not in content]:  # noqa: SIM118
            del value[key]
        for key, part in content.items():
            value[key] = part
    elif not isinstance(value, tuple):
        value.clear()
        value.extend(content)


def _merged_tensor(before: Tensor, copy: _Copy, now: Any, mask: Tensor, done: dict[Any, Any]) -> Any:
    if not isinstance(now, Tensor) or not _are_rows(now.shape, copy.values.shape, len(mask)):
        return now
    if now is before and not _has_changed(before, copy):
        return now
    key = id(before), id(now)
    if key not in done:
        rows = mask.reshape(-1, *[1] * (now.dim() - 1))
        merged = torch.where(rows, now, copy.values.to(now.dtype))
        # The original comes along, since only what is there keeps its id.
        done[key] = now, now.copy_(merged) if now is before else merged
    return done[key][1]


def _merged_array(before: np.ndarray, copy: np.ndarray, now: Any, mask: Tensor) -> Any:
    if not isinstance(now, np.ndarray) or not _are_rows(now.shape, copy.shape, len(mask)):
        return now
    if now is before and np.array_equal(now, copy):
        return now
    merged = np.where(mask.cpu().numpy().reshape(-1, *[1] * (now.ndim - 1)), now, copy)
    if now is not before:
        return merged
    now[...] = merged
    return now


def _has_changed(value: Tensor, copy: _Copy) -> bool:
    if _is_compared(value):
        return not torch.equal(value, copy.values)
    return copy.version is None or copy.version != value._version


def _is_compared(tensor: Tensor) -> bool:
    """Return whether a tensor's values tell if it was written to: on the CPU NumPy's writes are not counted."""
    return tensor.is_cpu


def _are_rows(now: Sequence[int], before: Sequence[int], num_envs: int) -> bool:
    return bool(now) and bool(before) and now[0] == num_envs and before[0] in (1, num_envs) and now[1:] == before[1:]


def _like(target: Any, values: list[Any]) -> Any:
    """Return a new sequence of the same kind."""
    if isinstance(target, deque):
        return deque(values, target.maxlen)
    return type(target)._make(values) if hasattr(target, "_make") else type(target)(values)
