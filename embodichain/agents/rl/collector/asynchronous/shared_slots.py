"""Messages between two processes, whose tensors go through reused shared memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

MAX_LAYOUTS = 16  # cached sets of shapes; more than a few only if shapes change from message to message

_Layout = tuple[tuple[torch.Size, torch.dtype, tuple[int, ...]], ...]  # shape, dtype and strides


@dataclass(frozen=True)
class _Slot:
    """Stands for a tensor."""

    index: int


@dataclass(frozen=True)
class Message:
    """The message in the pipe.

    Attributes:
        content: the data, with slots in place of its tensors.
        layout: number of the set of shapes and strides.
        new_slots: the tensors in shared memory, when this set is sent for the first time.
        dropped: number of a set that will not be used any more.
    """

    content: Any
    layout: int
    new_slots: list[Tensor] | None = None
    dropped: int | None = None


class SlotWriter:
    """The sender's side: copies the tensors of what it sends into shared memory.

    A message must have been read before the next one is written: the memory is the same.
    """

    def __init__(self) -> None:
        self._layouts: dict[_Layout, tuple[int, list[Tensor]]] = {}  # oldest first
        self._count = 0

    def write(self, value: Any) -> Message:
        """Return the message for plain data and TensorDicts, nested in tuples, lists and dictionaries.

        Identical tensor objects stay identical, and strides are preserved: the last bits of what is computed with a
        state depend on both.
        """
        tensors: list[Tensor] = []
        indices: dict[int, int] = {}  # by identity

        def take(tensor: Tensor) -> _Slot:
            index = indices.setdefault(id(tensor), len(tensors))
            if index == len(tensors):
                tensors.append(tensor)
            return _Slot(index)

        content = _map(value, Tensor, take)
        layout = tuple((tensor.shape, tensor.dtype, tensor.stride()) for tensor in tensors)
        new_slots, dropped = None, None
        if layout not in self._layouts:
            if len(self._layouts) == MAX_LAYOUTS:
                dropped, _ = self._layouts.pop(next(iter(self._layouts)))
            new_slots = [torch.empty_like(tensor).share_memory_() for tensor in tensors]
            self._layouts[layout] = (self._count, new_slots)
            self._count += 1
        number, slots = self._layouts[layout]
        for slot, tensor in zip(slots, tensors, strict=True):
            slot.copy_(tensor)
        return Message(content, number, new_slots, dropped)


class SlotReader:
    """The receiver's side."""

    def __init__(self) -> None:
        self._slots: dict[int, list[Tensor]] = {}

    def read(self, message: Message) -> Any:
        """Return the data with copies of its tensors."""
        if message.dropped is not None:
            del self._slots[message.dropped]
        if message.new_slots is not None:
            self._slots[message.layout] = message.new_slots
        copies = [slot.clone() for slot in self._slots[message.layout]]
        return _map(message.content, _Slot, lambda slot: copies[slot.index])


def _map(value: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """Return a copy of nested data with all objects of a kind changed; slots of a TensorDict are a ``_Nested``."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, TensorDict):
        parts = {key: _map(part, kind, change) for key, part in value.items()}
        return _Nested(parts, value.batch_size, value.device)
    if isinstance(value, _Nested):
        parts = {key: _map(part, kind, change) for key, part in value.parts.items()}
        return TensorDict(parts, batch_size=value.batch_size, device=value.device)
    if isinstance(value, dict):
        return {key: _map(part, kind, change) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_map(part, kind, change) for part in value)
    return value


@dataclass(frozen=True)
class _Nested:
    """Stands for a TensorDict."""

    parts: dict[str, Any]
    batch_size: torch.Size
    device: torch.device | None
