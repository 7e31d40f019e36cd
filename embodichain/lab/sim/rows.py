"""Changes of some environments' rows without reading their ids from the device, by snapshots of plain data.

Shapes: N environments, n in a call.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor


class ChosenRows(Tensor):
    """``env_ids`` of all N environments with a mask on the device of the chosen ones.

    It indexes tensors, and random numbers are drawn for it, as for any other ``env_ids``: for all N environments.
    :func:`changing_rows` and the physics change only the rows of the mask. Reading the ids raises an error, since they
    belong to all environments: :func:`row_numbers` returns the chosen ones.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # results are plain tensors
    mask: Tensor  # [N] bool, the chosen environments

    @classmethod
    def of_all(cls, num_envs: int, device: torch.device) -> "ChosenRows":
        """Return the rows of N environments, without a mask yet."""
        return torch.arange(num_envs, device=device).as_subclass(cls)

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "which environments env_ids means is known on the device alone. Write `env_ids = row_numbers(env_ids)` "
            "first (from embodichain.lab.sim.rows), which waits for the device: see 'Rows' in docs/extending.md"
        )

    def __repr__(self) -> str:  # type: ignore[override]
        return f"ChosenRows(of {len(self)})"

    def __getitem__(self, index: Any) -> Tensor:
        return self._refuse() if isinstance(index, int) else super().__getitem__(index)

    tolist = item = numpy = cpu = __array__ = __iter__ = __int__ = __index__ = __bool__ = _refuse


def row_numbers(env_ids: Tensor) -> Tensor:
    """Return the ids [n] of the chosen environments, for code that reads or counts ``env_ids``.

    With physics on a GPU this waits for the device; elsewhere it returns ``env_ids``.
    """
    return env_ids.mask.nonzero().squeeze(1) if isinstance(env_ids, ChosenRows) else env_ids


def chosen_rows(env_ids: Tensor) -> Tensor:
    """Return which of ``env_ids`` [n] are chosen, [n] bool, for sums over them; it does not wait for the device."""
    return env_ids.mask if isinstance(env_ids, ChosenRows) else torch.ones_like(env_ids, dtype=torch.bool)


@contextmanager
def changing_rows(owners: Sequence[object], mask: Tensor) -> Iterator[None]:
    """Restrict changes of the owners inside the block to the rows of a mask [N] bool, without a read by the host.

    The other rows of the owners' tensors [N, ...], also in lists, tuples and dictionaries, are restored, whether they
    were written into or replaced; so are tensors [1, ...] that become [N, ...].
    """
    before = [Snapshot(vars(owner), of_rows=len(mask)) for owner in owners]
    yield
    done: dict[Any, Any] = {}  # shared, so that one object under two names stays one object
    for owner, snapshot in zip(owners, before, strict=True):
        snapshot.with_rows_of(vars(owner), mask, done)


_PLAIN = (bool, int, float, str, type(None))  # most attributes; asked first, since it is asked in each step


class _Copy(NamedTuple):
    """A tensor's values, and its count of writes; None where torch has none."""

    values: Tensor
    version: int | None


class Snapshot:
    """A copy of plain data; with ``of_rows`` N, for :meth:`with_rows_of` only, data without N rows are not copied.

    Values are restored in place, into the same tensors, arrays, lists and dictionaries, so that views and other
    references see the change.
    """

    def __init__(self, value: Any, of_rows: int | None = None) -> None:
        self._root = value
        self._contents: dict[int, tuple[Any, Any]] = {}  # by id: the object, and its content
        self._save(value, of_rows)

    def copy(self) -> Any:
        """Return a copy of the data, in new objects."""
        return self._copied(self._root)

    def restore(self) -> Any:
        """Restore the data in place, and return them."""
        for value, content in self._contents.values():
            _put(value, content)
        return self._root

    def with_rows_of(self, now: Any, mask: Tensor, done: dict[Any, Any] | None = None) -> Any:
        """Restore the rows outside a mask [N] bool in the present data ``now``, and return it.

        Rows belong to tensors and arrays [N, ...] of one shape in the snapshot and now; [1, ...] in the snapshot counts
        as N equal rows. All else is as it is now. Several snapshots may share ``done``, the rows restored so far.
        """
        return self._merged(self._root, now, mask, {} if done is None else done)

    def _save(self, value: Any, of_rows: int | None) -> None:
        if type(value) in _PLAIN or id(value) in self._contents:
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
        if content is None:
            return now
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
    """Return an object's content: a copy of numbers, or lists and dictionaries of its parts; None: nothing."""
    if isinstance(value, Tensor | np.ndarray):
        if of_rows is not None and not (value.ndim and len(value) in (1, of_rows)):
            return None
        if isinstance(value, np.ndarray):
            return value.copy()
        # A row for all environments is only replaced by one for each, never written into.
        values = value.detach().clone() if of_rows is None or len(value) == of_rows else value
        return _Copy(values, None if value.is_inference() else value._version)
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, list | tuple | deque):
        return list(value)
    return dict(value.items()) if isinstance(value, dict | TensorDict) else None


def _put(value: Any, content: Any) -> None:
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
        # Kept with the original, so that its id is not reused.
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
    """Return whether writes are found by comparing values: on the CPU, where NumPy's are not counted."""
    return tensor.is_cpu


def _are_rows(now: Sequence[int], before: Sequence[int], num_envs: int) -> bool:
    return bool(now) and bool(before) and now[0] == num_envs and before[0] in (1, num_envs) and now[1:] == before[1:]


def _like(target: Any, values: list[Any]) -> Any:
    """Return a new sequence of the same kind."""
    if isinstance(target, deque):
        return deque(values, target.maxlen)
    return type(target)._make(values) if hasattr(target, "_make") else type(target)(values)
