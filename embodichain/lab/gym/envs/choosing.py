"""Changes in some environments alone, by number or by mask. Shapes: N environments, n those concerned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from embodichain.lab.sim.backend import Backend
from embodichain.utils import logger
from embodichain.utils.rows import changing_rows, is_by_mask

__all__ = ["Chooser", "episode_hooks_bound_to_ids"]


class Chooser:
    """Chooses by mask where the host would have to wait to know the numbers, and all that is told takes that.

    Attributes:
        by_mask: whether it does.
    """

    def __init__(self, backend: Backend, owners: Sequence[object], bound: Sequence[str]) -> None:
        """Find out, and warn where each step waits.

        Args:
            backend: the physics.
            owners: what remembers something of each environment.
            bound: the names of what must be told by number which environments begin an episode.
        """
        self.by_mask = backend.is_asynchronous and not bound
        self._backend = backend
        self._owners = owners
        if backend.is_asynchronous and bound:
            logger.log_warning(
                f"each step waits for the device to know which environments begin an episode, because of "
                f"{', '.join(bound)}: see 'by_mask' in docs/gpu.md"
            )

    @contextmanager
    def choose(self, mask: Tensor) -> Iterator[Tensor]:
        """Let the block change environments of a mask [N] bool alone; see ``BaseEnv.choose``."""
        if not self.by_mask:
            yield mask.nonzero().squeeze(1)
            return
        with self._backend.choose(mask) as env_ids, changing_rows(self._owners, mask):
            yield env_ids


def episode_hooks_bound_to_ids(env_class: type) -> list[str]:
    """Return the ``_initialize_episode`` of a class and its bases that are not declared by mask."""
    return [
        f"{cls.__name__}._initialize_episode"
        for cls in env_class.__mro__
        if "_initialize_episode" in vars(cls) and not is_by_mask(vars(cls)["_initialize_episode"])
    ]
