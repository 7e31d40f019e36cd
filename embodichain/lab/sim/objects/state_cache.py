"""Values that follow from the state, computed once for each state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from torch import Tensor

from embodichain.lab.sim.backend import Backend

__all__ = ["StateCache", "cached_per_state"]


class StateCache:
    """What an object computed from the present state of the physics; :func:`cached_per_state` fills it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._version = -1
        self._values: dict[Hashable, Tensor] = {}

    def values(self) -> dict[Hashable, Tensor]:
        """Return what was computed of the present state, by function and arguments."""
        if self._version != self._backend.version:
            self._values.clear()
            self._version = self._backend.version
        return self._values


class _Owner(Protocol):
    @property
    def state_cache(self) -> StateCache: ...


Owner = TypeVar("Owner", bound=_Owner)
P = ParamSpec("P")


def cached_per_state(func: Callable[Concatenate[Owner, P], Tensor]) -> Callable[Concatenate[Owner, P], Tensor]:
    """Compute a function's value once for each state of the physics, as ``functools.cache`` does for good.

    The first argument is an environment, or another object with a ``state_cache``. What the value depends on beside the
    physics, such as a target, is among the arguments: a tensor counts as itself, as long as it is not written into. Do
    not write into the value.

    Example::

        @cached_per_state
        def offset(env: EmbodiedEnv, target: Tensor) -> Tensor:
            return env.robot.get_eef_pose()[:, :3, 3] - target
    """

    @functools.wraps(func)
    def cached(owner: Owner, /, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        values = owner.state_cache.values()
        key = (func, *map(_identity, args), *kwargs.items())
        value = values.get(key)
        if value is None:
            value = values[key] = func(owner, *args, **kwargs)
        return value

    return cached


def _identity(argument: Any) -> Hashable:
    """Return what an argument is known by: of a tensor also how often it was written to, where torch counts that."""
    if isinstance(argument, Tensor) and not argument.is_inference():
        return argument, argument._version
    key: Hashable = argument
    return key
