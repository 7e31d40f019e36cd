"""Changes in some of many environments, without asking the device which they are.

Shapes: N environments, n those of one call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor

from embodichain.utils.snapshots import Snapshot

__all__ = ["ChosenRows", "changing_rows", "row_numbers"]


class ChosenRows(Tensor):
    """``env_ids`` where only the device knows which environments are meant: the numbers of all N, and a mask.

    It indexes tensors, and random numbers are drawn for it, as for any other ``env_ids``: for all N environments.
    :func:`changing_rows` and the physics keep only the rows of the mask. To read the numbers is an error, since they
    would be those of all environments: :func:`row_numbers` returns the ones that are meant.

    Attributes:
        mask: [N] bool, the environments that are meant.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # results are plain tensors
    mask: Tensor

    @classmethod
    def of_all(cls, num_envs: int, device: torch.device) -> ChosenRows:
        """Return the rows of N environments, of which none is chosen yet."""
        return torch.arange(num_envs, device=device).as_subclass(cls)

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "which environments env_ids means is known on the device alone. Write `env_ids = row_numbers(env_ids)` "
            "first (from embodichain.utils.rows), which waits for the device: see 'Rows' in docs/extending.md"
        )

    def __repr__(self) -> str:  # type: ignore[override]
        return f"ChosenRows(of {len(self)})"

    def __getitem__(self, index: Any) -> Tensor:
        return self._refuse() if isinstance(index, int) else super().__getitem__(index)

    tolist = item = numpy = cpu = __array__ = __iter__ = __int__ = __index__ = __bool__ = _refuse


def row_numbers(env_ids: Tensor) -> Tensor:
    """Return the numbers [n] of the environments that ``env_ids`` means, for code that reads or counts them.

    Args:
        env_ids: as a term, a functor's ``reset`` or ``_initialize_episode`` is given it. Where physics run on a GPU,
            this waits for the device; elsewhere it returns ``env_ids``.
    """
    return env_ids.mask.nonzero().squeeze(1) if isinstance(env_ids, ChosenRows) else env_ids


@contextmanager
def changing_rows(owners: Sequence[object], mask: Tensor) -> Iterator[None]:
    """Let what happens to the owners inside the block change the rows of a mask [N] alone; nothing is read by the host.

    Of the owners' attributes the tensors [N, ...], also those in lists, tuples and dictionaries, get their other rows
    back, whether they were written into or replaced; so do tensors [1, ...] that become [N, ...].

    Args:
        owners: the objects.
        mask: [N] bool.
    """
    before = [Snapshot(vars(owner), of_rows=len(mask)) for owner in owners]
    yield
    done: dict[Any, Any] = {}  # what was one object under two names stays so, across owners
    for owner, snapshot in zip(owners, before, strict=True):
        snapshot.with_rows_of(vars(owner), mask, done)
