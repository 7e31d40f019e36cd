"""Values that follow from the state, computed once for each state."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from torch import Tensor

from embodichain.lab.sim.backend import Backend

__all__ = ["Kept"]


class Kept:
    """Keeps what is computed from the state until the state changes.

    Observations, rewards and the task ask for the same positions, poses and distances; each is computed for the first.

    Example::

        speed = kept.get(("speed", uid), lambda: torch.linalg.vector_norm(velocity(), dim=1))
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._version = -1
        self._values: dict[Hashable, Tensor] = {}

    def get(self, key: Hashable, compute: Callable[[], Tensor]) -> Tensor:
        """Return ``compute()`` of the present state, [N, ...]; do not write into it.

        Args:
            key: what it is; everything beside the state that it depends on belongs into it.
            compute: called when nobody has asked since the state changed.
        """
        if self._version != self._backend.version:
            self._values.clear()
            self._version = self._backend.version
        value = self._values.get(key)
        if value is None:
            value = self._values[key] = compute()
        return value
