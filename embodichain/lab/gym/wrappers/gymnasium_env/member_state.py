"""The state of one Gymnasium environment as plain data, where all of it can be found.

A checkpoint is loaded without running code, so that nothing is pickled: what is saved are the numbers, texts and arrays
that the environment, its wrappers and the objects in them hold, their random generators, and MuJoCo's data. Of an
environment that holds anything else (another physics engine, a file, a queue) nothing is saved.

Objects are restored in place: a checkpoint has their classes' names and which attributes lead to one object, and a
class is never looked up by its name.
"""

from __future__ import annotations

import copyreg
import enum
import inspect
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec

from embodichain.lab.sim.backend.single_data import SingleData, is_data, is_model
from embodichain.utils.state import is_data as is_plain

State = dict[str, dict[str, Any]]
"""By the path of an object in the environment, such as ``env.unwrapped``: its attributes, or what it is restored by.

Under "" is the structure, which earlier versions did not save: ``classes`` by path, ``same`` (by further paths to an
object, the path that it is saved under) and ``views`` (by the paths of arrays that share memory, how they do)."""

Simulations = dict[int, SingleData]
"""By the ids of the ``MjData`` that they hold."""

_STRUCTURE = ""
_BOUND_TO = "__self__"  # of a method

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
    found = _Found(env)
    state: State = {_STRUCTURE: {"classes": found.classes, "same": found.same, "views": _views(found.owners)}}
    for path, owner in found.owners.items():
        if isinstance(owner, np.random.Generator):
            state[path] = {"generator": owner.bit_generator.state}
        elif isinstance(owner, gym.Space):
            if vars(owner).get("_np_random") is not None:  # something was sampled from it
                state[path] = {"generator": owner.np_random.bit_generator.state}
        elif is_data(owner):
            state[path] = dict(_simulation(owner, simulations).copy())
        else:
            state[path] = {name: value for name, value in _attributes(owner).items() if is_plain(value)}
    return state


def restore_state(env: object, state: Mapping[str, Mapping[str, Any]], simulations: Simulations) -> None:
    """Restore what :func:`copy_state` returned for such an environment.

    Raises:
        UnknownStateError: as :func:`copy_state`; or something is not there yet whose state was saved, is of another
            class, or cannot be restored.
    """
    found = _Found(env)
    apart: Mapping[str, Any] = {}
    if _STRUCTURE in state:
        found = _with_structure(env, found, state[_STRUCTURE])
        shared = state[_STRUCTURE]["views"]
        apart = {path: how for path, how in _views(found.owners).items() if path not in shared}
    owners = {path: found.at(path) for path in state if path != _STRUCTURE}
    if missing := next((path for path, owner in owners.items() if owner is None), None):
        raise UnknownStateError(f"{missing} was made after the first reset")
    values = _Values()
    for path, owner in owners.items():
        try:
            _restore(path, owner, state[path], simulations, values, apart)
        except Exception as error:  # a user's object may raise anything
            raise UnknownStateError(f"{path} cannot be restored: {type(error).__name__}: {error}") from error


def _restore(
    path: str,
    owner: Any,
    saved: Mapping[str, Any],
    simulations: Simulations,
    values: _Values,
    apart: Mapping[str, Any],
) -> None:
    """Restore an object; ``apart`` has the paths of arrays that are not to share memory any more."""
    if isinstance(owner, np.random.Generator):
        owner.bit_generator.state = dict(saved["generator"])
    elif isinstance(owner, gym.Space):
        owner.np_random.bit_generator.state = dict(saved["generator"])
    elif is_data(owner):
        _simulation(owner, simulations).restore(saved)
    else:
        attributes = _attributes(owner)  # not by setattr, which a class may refuse or answer with more
        for name, value in saved.items():
            before = None if f"{path}.{name}" in apart else attributes.get(name)
            attributes[name] = values.put(value, before)


class _Found:
    """Everything in an environment that holds state.

    Attributes:
        owners: by the first path that leads to each.
        same: the other paths, with the first.
        classes: names by path, of owners' classes and of attributes that are classes or functions.

    Raises:
        UnknownStateError: something is not known.
    """

    def __init__(self, env: object) -> None:
        self.owners: dict[str, Any] = {}
        self.same: dict[str, str] = {}
        self.classes: dict[str, str] = {}
        self._paths: dict[int, str] = {}
        self._visit("env", env)

    def at(self, path: str) -> Any:
        """Return what a path leads to, None: nothing."""
        if path in self.owners:
            return self.owners[path]
        before, _, name = path.rpartition(".")
        owner = self.at(before) if before else None
        if name == _BOUND_TO:
            return getattr(owner, name, None)
        attributes = _attributes(owner)
        return attributes[name] if name in attributes else _of_class(owner).get(name)

    def point(self, path: str, target: object) -> None:
        """Let an attribute be another object."""
        before, _, name = path.rpartition(".")
        holder = self.at(before) if before else None
        attributes = _attributes(holder)
        if name in attributes:
            attributes[name] = target

    def _visit(self, path: str, value: Any) -> None:
        if inspect.isclass(value) or inspect.isroutine(value):
            self.classes[path] = _name(value)
            if inspect.ismethod(value):
                self._visit(f"{path}.{_BOUND_TO}", value.__self__)
            if not inspect.isfunction(value) or value.__closure__ is None:
                return
        if _is_constant(value):
            return
        if id(value) in self._paths:
            self.same[path] = self._paths[id(value)]
            return
        is_whole = isinstance(value, gym.Space | np.random.Generator) or is_data(value)
        is_function = inspect.isfunction(value)
        if not (is_whole or is_function) and (isinstance(value, enum.Enum) or not _is_all_in_attributes(value)):
            raise UnknownStateError(f"{path} is a {_name(type(value))}, whose state is not known")
        self._paths[id(value)] = path
        self.owners[path] = value
        self.classes[path] = _name(value if is_function else type(value))
        if isinstance(value, gym.Space):
            for name, part in _parts(value):
                self._visit(f"{path}.{name}", part)
        elif not is_whole:
            for name, part in (_of_class(value) | dict(_attributes(value))).items():
                if not is_plain(part):
                    self._visit(f"{path}.{name}", part)


class _Closure(MutableMapping[str, Any]):
    """What a function holds of the function that it was made in, by name."""

    def __init__(self, function: FunctionType) -> None:
        self._cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def __getitem__(self, name: str) -> Any:
        try:
            return self._cells[name].cell_contents
        except ValueError:  # it has no value yet
            return None

    def __setitem__(self, name: str, value: Any) -> None:
        self._cells[name].cell_contents = value

    def __delitem__(self, name: str) -> None:
        del self._cells[name].cell_contents

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)


def _attributes(owner: object) -> MutableMapping[str, Any]:
    """Return what an object holds by name, to be changed in place."""
    return _Closure(owner) if inspect.isfunction(owner) else getattr(owner, "__dict__", {})


def _of_class(owner: object) -> dict[str, Any]:
    """Return the spaces and random generators that an object has from its class, by name."""
    return {
        name: value
        for base in reversed(type(owner).__mro__)
        for name, value in vars(base).items()
        if isinstance(value, gym.Space | np.random.Generator)
    }


def _with_structure(env: object, found: _Found, structure: Mapping[str, Any]) -> _Found:
    """Let attributes lead to one object where they did; return what is found then.

    Raises:
        UnknownStateError: the classes or what is shared still are others.
    """
    classes: Mapping[str, str] = structure["classes"]
    same: Mapping[str, str] = structure["same"]
    groups: dict[str, list[str]] = {}
    for path in (*classes, *same):
        groups.setdefault(same.get(path, path), []).append(path)
    for _ in same:
        if not _point_one_group(found, groups):
            break
        found = _Found(env)
    of_objects: dict[int, str] = {}
    for first, paths in groups.items():
        for path in paths:
            now = found.at(path)
            if now is None:
                raise UnknownStateError(f"{path} was made after the first reset")
            is_code = inspect.isclass(now) or inspect.isroutine(now)
            name = _name(now if is_code else type(now))
            if name != classes[first]:
                raise UnknownStateError(f"{path} was a {classes[first]}, and is a {name} now")
            if not is_code and of_objects.setdefault(id(now), first) != first:
                raise UnknownStateError(f"{path} and {of_objects[id(now)]} were two objects, and are one now")
        if len({id(found.at(path)) for path in paths}) > 1:
            raise UnknownStateError(f"{' and '.join(paths)} were one object, and are several now")
    views = _views(found.owners)
    if changed := next((path for path, how in structure["views"].items() if views.get(path) != how), None):
        raise UnknownStateError(f"{changed} shared the memory of another array, and does not now")
    return found


def _point_one_group(found: _Found, groups: Mapping[str, Sequence[str]]) -> bool:
    """Let the paths of one group that lead to several objects lead to one; return whether there was such a group."""
    for first, paths in groups.items():
        objects = [found.at(path) for path in paths]
        if len({id(each) for each in objects}) > 1 and all(each is not None for each in objects):
            # Preferably an object that no other group is about.
            others = {id(found.at(path)) for other, rest in groups.items() if other != first for path in rest}
            target = next((each for each in objects if id(each) not in others), objects[0])
            for path in paths:
                found.point(path, target)
            return True
    return False


def _views(owners: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return how arrays in attributes share memory, by their paths: with which, from which byte, and their form."""
    arrays = {
        id(value): (f"{path}.{name}", value)
        for path, owner in reversed(list(owners.items()))
        if not isinstance(owner, gym.Space)
        for name, value in reversed(list(_attributes(owner).items()))
        if type(value) is np.ndarray and value.size > 0
    }
    bounds = [(*_memory(value), path, value) for path, value in arrays.values()]
    views: dict[str, list[Any]] = {}
    first, first_low, end = "", 0, 0
    for low, high, path, value in sorted(bounds, key=lambda bound: bound[:3]):
        if low >= end:
            first, first_low, end, held = path, low, high, value
            continue
        end = max(end, high)
        views[first] = [first, 0, *_form(held)]
        views[path] = [first, low - first_low, *_form(value)]
    return views


def _memory(array: np.ndarray) -> tuple[int, int]:
    """Return an array's lowest address, and the one after its highest."""
    low = high = array.__array_interface__["data"][0]
    for size, stride in zip(array.shape, array.strides, strict=True):
        low, high = (low, high + (size - 1) * stride) if stride > 0 else (low + (size - 1) * stride, high)
    return low, high + array.itemsize


def _form(array: np.ndarray) -> tuple[list[int], list[int], str]:
    return list(array.shape), list(array.strides), array.dtype.str


@dataclass
class _Values:
    """Puts saved values where an environment has its own; what several attributes shared, they share again.

    Attributes:
        _done: what saved lists, dictionaries and arrays have become, by their ids.
        _used: ids of the environment's own that have a saved value by now.
    """

    _done: dict[int, Any] = field(default_factory=dict)
    _used: set[int] = field(default_factory=set)

    def put(self, value: Any, before: Any) -> Any:
        """Return a saved value: within the present one, to which others may refer, where that has the same form."""
        if type(value) is tuple:
            return tuple(self.put(part, None) for part in value)
        if not isinstance(value, np.ndarray | list | dict | deque):
            return value
        if id(value) not in self._done:
            is_free = _has_form_of(before, value) and id(before) not in self._used
            self._done[id(value)] = target = before if is_free else value
            self._used.add(id(target))
            self._fill(target, value)
        return self._done[id(value)]

    def _fill(self, target: Any, value: Any) -> None:
        if isinstance(value, np.ndarray):
            if target is not value:
                target[...] = value
        elif isinstance(value, dict):
            parts = {key: self.put(part, None) for key, part in value.items()}
            target.clear()
            target.update(parts)
        else:
            items = [self.put(part, None) for part in value]
            target.clear()
            target.extend(items)


def _has_form_of(before: Any, value: Any) -> bool:
    if type(before) is not type(value):
        return False
    if isinstance(value, np.ndarray):
        return bool(before.flags.writeable) and before.shape == value.shape and before.dtype == value.dtype
    if isinstance(value, deque):
        return before.maxlen == value.maxlen
    return not isinstance(value, defaultdict) or before.default_factory is value.default_factory


def _is_constant(value: object) -> bool:
    """Return whether an object has no state that an episode changes."""
    return isinstance(value, EnvSpec | ModuleType) or is_model(value) or type(value).__module__.startswith(_RENDERERS)


def _name(value: Any) -> str:
    """Return the full name of a class or a function."""
    return f"{value.__module__}.{getattr(value, '__qualname__', type(value).__qualname__)}"


def _is_all_in_attributes(owner: object) -> bool:
    """Return whether copying an object copies its attributes and nothing else, such as what a C library holds."""
    try:
        function, args, state, *items = tuple[Any, ...](owner.__reduce_ex__(2))
    except Exception:  # noqa: BLE001 (a user's own __reduce__ may raise anything)
        return False
    is_plain_class = function is copyreg.__newobj__ and args == (type(owner),)  # type: ignore[attr-defined]
    return is_plain_class and not isinstance(state, tuple) and not any(items) and hasattr(owner, "__dict__")


def _parts(space: gym.Space[Any]) -> list[tuple[str, gym.Space[Any]]]:
    """Return the spaces in a space, by name."""
    inner = vars(space).get("spaces", ())
    return [(str(name), part) for name, part in (inner.items() if isinstance(inner, Mapping) else enumerate(inner))]


def _simulation(data: Any, simulations: Simulations) -> SingleData:
    if id(data) not in simulations:
        simulations[id(data)] = SingleData(data)
    return simulations[id(data)]
