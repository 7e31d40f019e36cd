"""The state of objects as plain data for a checkpoint.

Plain data are tensors, TensorDicts, NumPy arrays, numbers, texts, None, torch generators, and lists, tuples, deques and
dictionaries of them.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

_KIND = "__kind__"  # marks a dictionary that encodes another type


def is_data(value: Any) -> bool:
    """Return whether a value is plain data throughout."""
    if isinstance(value, Mapping) and not isinstance(value, TensorDict):
        return isinstance(value, dict) and all(is_data(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple | deque):
        return all(map(is_data, value))
    kinds = (Tensor, TensorDict, np.ndarray, np.generic, bool, int, float, str, torch.Generator)
    return value is None or isinstance(value, kinds)


def attributes(owner: object, exclude: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return all attributes of an object that are plain data, by name, without copies.

    This finds the state of users' tasks and terms; our objects declare theirs.
    """
    return {name: value for name, value in vars(owner).items() if name not in exclude and is_data(value)}


def load_attributes(owner: object, state: Mapping[str, Any]) -> None:
    """Set the attributes that :func:`attributes` returned; tensors go to the device of the present ones.

    Attributes that are not plain data now stay.
    """
    for name, value in state.items():
        before = vars(owner).get(name)
        if isinstance(before, Tensor) and isinstance(value, Tensor):
            setattr(owner, name, value.to(before.device))
        elif is_data(before):
            setattr(owner, name, value)


class DeclaresState(Protocol):
    """An object that declares the attributes which change after it was built."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the attributes."""
        ...


def declared_state(owner: DeclaresState) -> dict[str, Any]:
    """Return the attributes that an object declares as its state, by name; nothing is copied."""
    return {name: getattr(owner, name) for name in owner.state_names}


def load_declared_state(owner: DeclaresState, state: Mapping[str, Any]) -> None:
    """Set an object's declared attributes; others in the state, which version 0.1 wrote, are ignored."""
    load_attributes(owner, {name: value for name, value in state.items() if name in owner.state_names})


def freeze(value: Any, copies: dict[int, Any] | None = None) -> Any:
    """Return a copy of plain data made of dictionaries, lists, tuples, tensors, numbers and texts alone.

    A tensor that occurs several times is copied once; ``copies`` has the copies by the original's id.
    """
    copies = {} if copies is None else copies
    if isinstance(value, Tensor):
        if id(value) not in copies:
            copies[id(value)] = value.detach().clone()
        return copies[id(value)]
    if isinstance(value, TensorDict):
        entries = {name: freeze(entry, copies) for name, entry in value.items()}
        return {_KIND: "tensordict", "value": entries, "batch_size": list(value.batch_size)}
    if isinstance(value, np.ndarray):
        return {_KIND: "array", "value": torch.from_numpy(np.array(value))}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, torch.Generator):
        return {_KIND: "generator", "value": value.get_state(), "device": str(value.device)}
    if isinstance(value, deque):
        return {_KIND: "deque", "value": [freeze(part, copies) for part in value], "maxlen": value.maxlen}
    if isinstance(value, dict):
        return {key: freeze(part, copies) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(freeze(part, copies) for part in value)
    return value


def thaw(value: Any) -> Any:
    """Undo :func:`freeze`."""
    if isinstance(value, list | tuple):
        return type(value)(map(thaw, value))
    if not isinstance(value, dict):
        return value
    match value.get(_KIND):
        case "tensordict":
            return TensorDict(thaw(value["value"]), batch_size=value["batch_size"])
        case "array":
            return value["value"].numpy()
        case "generator":
            generator = torch.Generator(value["device"])
            generator.set_state(value["value"])
            return generator
        case "deque":
            return deque(map(thaw, value["value"]), value["maxlen"])
    return {key: thaw(part) for key, part in value.items()}


def generators_state() -> dict[str, Any]:
    """Return the state of the process's global random generators: torch's of all devices, NumPy's and Python's."""
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "numpy": np.random.get_state(),  # noqa: NPY002 (the generator that users' code draws from)
        "python": random.getstate(),
    }


def load_generators_state(state: Mapping[str, Any]) -> None:
    """Restore what :func:`generators_state` returned; missing devices are ignored."""
    torch.set_rng_state(state["torch"])
    for device, generator in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(generator, device)
    np.random.set_state(state["numpy"])  # noqa: NPY002
    random.setstate(state["python"])
