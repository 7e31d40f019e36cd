"""The state of one Gymnasium environment as plain data, where all of it can be found.

A checkpoint is loaded without running code, so that nothing is pickled: what is saved are the numbers, texts and arrays
that the environment, its wrappers and the objects in them hold, their random generators, and MuJoCo's data. Of an
environment that holds anything else (another physics engine, a file, a queue) nothing is saved.
"""

from __future__ import annotations

import copyreg
import enum
import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from embodichain.lab.sim.backend.single_data import SingleData, is_data, is_model
from embodichain.utils.state import is_data as is_plain

State = dict[str, dict[str, Any]]
"""By the path of an object in the environment, such as ``env.unwrapped``: its attributes, or what it is restored by."""

Simulations = dict[int, SingleData]
"""By the ids of the ``MjData`` that they hold."""

# Draw images; they hold nothing of an episode.
_RENDERERS = ("gymnasium.envs.mujoco.mujoco_rendering", "pygame")


class UnknownStateError(Exception):
    """An environment holds an object whose state is not known."""


def copy_state(env: object, simulations: Simulations) -> State:
    """Return an environment's state; it shares arrays with the environment.

    Args:
        simulations: of the environment, filled for the next time.

    Raises:
        UnknownStateError: it holds something that is not known; the message names it.
    """
    state: State = {}
    for path, owner in _owners("env", env, set()):
        if isinstance(owner, np.random.Generator):
            state[path] = {"generator": owner.bit_generator.state}
        elif isinstance(owner, gym.Space):
            if vars(owner).get("_np_random") is not None:  # something was sampled from it
                state[path] = {"generator": owner.np_random.bit_generator.state}
        elif is_data(owner):
            state[path] = dict(_simulation(owner, simulations).copy())
        else:
            state[path] = {name: value for name, value in vars(owner).items() if is_plain(value)}
    return state


def restore_state(env: object, state: Mapping[str, Mapping[str, Any]], simulations: Simulations) -> None:
    """Restore what :func:`copy_state` returned for such an environment.

    Raises:
        UnknownStateError: as :func:`copy_state`, or something is not there yet whose state was saved.
    """
    owners = dict(_owners("env", env, set()))
    if missing := next((path for path in state if path not in owners), None):
        raise UnknownStateError(f"{missing} was made after the first reset")
    for path, saved in state.items():
        owner = owners[path]
        if isinstance(owner, np.random.Generator):
            owner.bit_generator.state = dict(saved["generator"])
        elif isinstance(owner, gym.Space):
            owner.np_random.bit_generator.state = dict(saved["generator"])
        elif is_data(owner):
            _simulation(owner, simulations).restore(saved)
        else:
            for name, value in saved.items():
                _put(owner, name, value)


def _owners(path: str, owner: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    """Yield everything that holds state, with its path."""
    if id(owner) in seen or _is_constant(owner):
        return
    seen.add(id(owner))
    if isinstance(owner, gym.Space):
        yield from _spaces(path, owner)
        return
    if isinstance(owner, np.random.Generator) or is_data(owner):
        yield path, owner
        return
    if isinstance(owner, enum.Enum) or not _is_all_in_attributes(owner):
        kind = f"{type(owner).__module__}.{type(owner).__qualname__}"
        raise UnknownStateError(f"{path} is a {kind}, whose state is not known")
    yield path, owner
    for name, value in vars(owner).items():
        if not is_plain(value):
            yield from _owners(f"{path}.{name}", value, seen)


def _is_constant(value: object) -> bool:
    """Return whether an object has no state that an episode changes."""
    if isinstance(value, EnvSpec | ModuleType) or is_model(value):
        return True
    return inspect.isclass(value) or inspect.isroutine(value) or type(value).__module__.startswith(_RENDERERS)


def _is_all_in_attributes(owner: object) -> bool:
    """Return whether copying an object copies its attributes and nothing else, such as what a C library holds."""
    try:
        function, args, state, *items = tuple[Any, ...](owner.__reduce_ex__(2))
    except (TypeError, ValueError):
        return False
    is_plain_class = function is copyreg.__newobj__ and args == (type(owner),)  # type: ignore[attr-defined]
    return is_plain_class and not isinstance(state, tuple) and not any(items) and hasattr(owner, "__dict__")


def _spaces(path: str, space: gym.Space[Any]) -> Iterator[tuple[str, gym.Space[Any]]]:
    """Yield a space and those in it."""
    yield path, space
    inner = vars(space).get("spaces", ())
    for name, part in inner.items() if isinstance(inner, Mapping) else enumerate(inner):
        yield from _spaces(f"{path}.{name}", part)


def _simulation(data: Any, simulations: Simulations) -> SingleData:
    if id(data) not in simulations:
        simulations[id(data)] = SingleData(data)
    return simulations[id(data)]


def _put(owner: object, name: str, value: Any) -> None:
    """Set an attribute; into an array of the same form, which may be a view that others share."""
    before: Any = vars(owner).get(name)
    are_arrays = isinstance(before, np.ndarray) and isinstance(value, np.ndarray) and before.flags.writeable
    if are_arrays and before.shape == value.shape and before.dtype == value.dtype:
        before[...] = value
    elif not name.startswith("__"):
        setattr(owner, name, value)
