"""Changes of some environments' rows without reading their ids from the device. Shapes: N environments, n in a call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor

from embodichain.utils.snapshots import Snapshot


class ChosenRows(Tensor):
    """``env_ids`` of all N environments with a mask on the device of the chosen ones.

    It indexes tensors, and random numbers are drawn for it, as for any other ``env_ids``: for all N environments.
    :func:`changing_rows` and the physics change only the rows of the mask. Reading the ids raises an error, since they
    belong to all environments: :func:`row_numbers` returns the chosen ones.

    Attributes:
        mask: [N] bool, the chosen environments.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # results are plain tensors
    mask: Tensor

    @classmethod
    def of_all(cls, num_envs: int, device: torch.device) -> ChosenRows:
        """Return the rows of N environments, without a mask yet."""
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
    """Return the ids [n] of the chosen environments, for code that reads or counts them.

    Args:
        env_ids: the argument of a term, a functor's ``reset`` or ``_initialize_episode``. With physics on a GPU this
            waits for the device; elsewhere it returns ``env_ids``.
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
