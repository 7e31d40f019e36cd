"""Changes in some of many environments, without asking the device which they are.

Shapes: N environments, n those of one call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

__all__ = ["by_mask", "changing_rows", "is_by_mask"]

T = TypeVar("T")


def by_mask(target: T) -> T:
    """Declare that what is called for environments ``env_ids`` [n] may as well be called for all of them.

    Its effects on the others are then undone. So it must have none but on the simulation's state and model, and on
    tensors [N, ...] that are attributes of the environment, of a functor, or of a thing in the scene. It must not look
    at the numbers in ``env_ids``, or at how many they are, but by indexing with them.

    Put it on functions, on functor classes (for what they do when called and in ``reset``), or on
    ``_initialize_episode``.
    """
    untyped: Any = target
    untyped.is_by_mask = True
    return target


def is_by_mask(target: object) -> bool:
    """Return whether something was declared so: a function itself, an object by its own class."""
    return any(getattr(owner, "__dict__", {}).get("is_by_mask", False) for owner in (target, type(target)))


class _Kept(NamedTuple):
    owner: object
    name: str
    tensor: Tensor
    copy: Tensor
    version: int | None


@contextmanager
def changing_rows(owners: Sequence[object], mask: Tensor) -> Iterator[None]:
    """Let what happens to the owners inside the block change the rows of a mask [N] alone; nothing is read by the host.

    Of the owners' attributes those that are tensors [N, ...] get their other rows back, whether they were written into
    or replaced; so do tensors [1, ...] that become [N, ...].

    Args:
        owners: the objects.
        mask: [N] bool.
    """
    num_envs = len(mask)
    kept = [
        _Kept(owner, name, value, value if len(value) < num_envs else value.clone(), _version(value))
        for owner in owners
        for name, value in vars(owner).items()
        if isinstance(value, Tensor) and value.dim() and len(value) in (1, num_envs)
    ]
    yield
    # What was one object under two names stays so.
    merged: dict[tuple[int, int], Tensor] = {}
    for owner, name, before, copy, version in kept:
        now = vars(owner).get(name)
        if not isinstance(now, Tensor) or not now.dim() or len(now) != num_envs:
            continue
        if now is before and version is not None and version == _version(now):
            continue
        key = (id(before), id(now))
        if key not in merged:
            value = torch.where(mask.reshape(-1, *[1] * (now.dim() - 1)), now, copy)
            merged[key] = now.copy_(value) if now is before else value
        if now is not before:
            setattr(owner, name, merged[key])


def _version(tensor: Tensor) -> int | None:
    """Return how often a tensor was written to; None where nobody knows: NumPy and inference mode do not count."""
    return None if tensor.is_cpu or tensor.is_inference() else tensor._version
