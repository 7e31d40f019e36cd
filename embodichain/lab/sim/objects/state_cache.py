"""A cache of values computed from the physics state."""

import functools
from collections.abc import Callable, Hashable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from torch import Tensor

from embodichain.lab.sim.backend import Backend


class StateCache:
    """Values computed from the present state of the physics; :func:`cached_per_state` fills it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._version = -1
        self._values: dict[Hashable, Tensor] = {}

    def values(self) -> dict[Hashable, Tensor]:
        """Return the values of the present state by function and arguments."""
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
    """Cache a function's value until the physics state changes.

    The first argument is an environment, or another object with a ``state_cache``. Everything else that the value
    depends on, such as a target, must be an argument; a tensor is compared by identity and by its count of writes. Do
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
    """Return the cache key of an argument; a tensor's includes its count of writes, where torch has one."""
    if isinstance(argument, Tensor) and not argument.is_inference():
        return argument, argument._version
    key: Hashable = argument
    return key
