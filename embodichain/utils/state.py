"""The state of objects as plain data for a checkpoint.

Plain data are tensors, TensorDicts, NumPy arrays, numbers, texts, None, torch generators, and lists, tuples, deques and
dictionaries of them. Instances of users' subclasses of these are not: a checkpoint does not name a user's class.
"""

from __future__ import annotations

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors_torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.utils import logger
from embodichain.utils.errors import ConfigError
from embodichain.utils.files import read_bytes, write_atomically

_KIND = "__kind__"  # marks a dictionary that encodes another type


_SIMPLE = (type(None), bool, int, float, str)
_SEQUENCES = (list, tuple, torch.Size, deque)
_MAPPINGS = (dict, OrderedDict, defaultdict, Counter)
_SHARED = (Tensor, TensorDict, np.ndarray, torch.Generator, list, deque, dict)  # one object may be in several places

# Factories of a defaultdict's missing values, by the name in a checkpoint.
_FACTORIES: dict[str, Callable[[], Any] | None] = {
    "none": None,
    **{kind.__name__: kind for kind in (bool, int, float, str, list, dict)},
}


def is_data(value: Any) -> bool:
    """Return whether a value is plain data throughout."""
    kind = type(value)
    if kind in (*_SIMPLE, Tensor, torch.Generator):
        return True
    if kind in _SEQUENCES:
        return all(map(is_data, value))
    if kind in _MAPPINGS:
        has_known_factory = kind is not defaultdict or value.default_factory in _FACTORIES.values()
        keys_are_known = _KIND not in value and all(map(_is_key, value))
        return has_known_factory and keys_are_known and all(map(is_data, value.values()))
    if kind is TensorDict:
        return all(map(is_data, value.values()))
    return (kind is np.ndarray and _is_known(value.dtype)) or _is_scalar(value)


def _is_key(value: Any) -> bool:
    return all(map(_is_key, value)) if type(value) is tuple else type(value) in _SIMPLE or _is_scalar(value)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, np.generic) and type(value) is value.dtype.type and _is_known(value.dtype)


def _is_known(dtype: np.dtype[Any]) -> bool:
    """Return whether arrays of a type can be saved: torch has it, or it is text. The size of long doubles varies."""
    return dtype.isnative and dtype.kind in "biufcU" and dtype.char not in "gG"


def is_all_saved(owner: object) -> bool:
    """Return whether :func:`attributes` has all of an object's values; if not, the log says which are not."""
    kinds = (Enum, int, float, str, np.generic, np.ndarray, Tensor, defaultdict, Counter)
    left_out = [
        f"{name} is a {type(value).__module__}.{type(value).__qualname__}"
        for name, value in vars(owner).items()
        if (isinstance(value, kinds) or hasattr(value, "_fields")) and not is_data(value)  # or a named tuple
    ]
    if left_out:
        logger.log_info(
            f"{type(owner).__name__}: new episodes begin, since the state of these cannot be restored: "
            f"{', '.join(left_out)}, whose state is not known"
        )
    return not left_out


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
    """Set an object's declared attributes."""
    load_attributes(owner, state)


def freeze(value: Any, copies: dict[int, tuple[Any, Any]] | None = None) -> Any:
    """Return a copy of plain data made of dictionaries, lists, tuples, tensors, numbers and texts alone.

    Repeated objects are copied once; ``copies`` has originals and copies by the original's id. Of such a copy
    the result is an equal one.
    """
    copies = {} if copies is None else copies
    if not isinstance(value, _SHARED):
        return _frozen(value, copies)
    if id(value) not in copies:
        copies[id(value)] = value, _frozen(value, copies)  # with the original, so that its id is not reused
    return copies[id(value)][1]


def _frozen(value: Any, copies: dict[int, tuple[Any, Any]]) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, TensorDict):
        entries = {name: freeze(entry, copies) for name, entry in value.items()}
        return {_KIND: "tensordict", "value": entries, "batch_size": list(value.batch_size)}
    if isinstance(value, np.ndarray):
        return _frozen_array(value)
    if isinstance(value, np.generic):
        return {_KIND: "scalar", "value": _frozen_array(np.asarray(value))}
    if isinstance(value, torch.Generator):
        return {_KIND: "generator", "value": value.get_state(), "device": str(value.device)}
    if isinstance(value, deque):
        return {_KIND: "deque", "value": [freeze(part, copies) for part in value], "maxlen": value.maxlen}
    if isinstance(value, dict):
        return _frozen_mapping(value, copies)
    if type(value) in _SEQUENCES:
        return type(value)([freeze(part, copies) for part in value])
    return value


def _frozen_array(value: np.ndarray) -> dict[str, Any]:
    if value.dtype.kind == "U":  # which torch has no type for
        texts = {"value": value.ravel().tolist(), "shape": list(value.shape), "dtype": value.dtype.str}
        return {_KIND: "texts"} | texts
    # Of integers of one size, torch knows one of C's names.
    return {_KIND: "array", "value": torch.from_numpy(np.array(value).view(value.dtype.str))}


def _frozen_mapping(value: dict[Any, Any], copies: dict[int, tuple[Any, Any]]) -> dict[Any, Any]:
    parts = {key: freeze(part, copies) for key, part in value.items()}
    if isinstance(value, Counter):
        return {_KIND: "counter", "value": _pairs(parts)}
    if isinstance(value, defaultdict):
        factory = next((name for name, kind in _FACTORIES.items() if kind is value.default_factory), "none")
        return {_KIND: "defaultdict", "value": _pairs(parts), "factory": factory}
    if any(map(_has_scalar, parts)):
        return {_KIND: "dict", "value": _pairs(parts)}
    return OrderedDict(parts) if isinstance(value, OrderedDict) else parts


def _pairs(parts: dict[Any, Any]) -> list[list[Any]]:
    return [[freeze(key), part] for key, part in parts.items()]


def _has_scalar(key: Any) -> bool:
    return any(map(_has_scalar, key)) if isinstance(key, tuple) else isinstance(key, np.generic)


def thaw(value: Any, made: dict[int, Any] | None = None) -> Any:
    """Undo :func:`freeze`; ``made`` has the results of lists and dictionaries, by their ids."""
    made = {} if made is None else made
    if not isinstance(value, list | dict):
        return type(value)([thaw(part, made) for part in value]) if isinstance(value, tuple) else value
    if id(value) not in made:
        made[id(value)] = _thawed(value, made)
    return made[id(value)]


def _thawed(value: Any, made: dict[int, Any]) -> Any:
    if isinstance(value, list):
        return [thaw(part, made) for part in value]
    match value.get(_KIND):
        case "tensordict":
            return TensorDict(thaw(value["value"], made), batch_size=value["batch_size"])
        case "array":
            return value["value"].numpy()
        case "texts":
            return np.array(value["value"], dtype=value["dtype"]).reshape(value["shape"])
        case "scalar":
            return thaw(value["value"], made)[()]
        case "generator":
            generator = torch.Generator(value["device"])
            generator.set_state(value["value"])
            return generator
        case "deque":
            return deque([thaw(part, made) for part in value["value"]], value["maxlen"])
        case "dict":
            return _mapping(value, made)
        case "counter":
            return Counter(_mapping(value, made))
        case "defaultdict":
            return defaultdict(_FACTORIES[value["factory"]], _mapping(value, made))
    return type(value)((key, thaw(part, made)) for key, part in value.items())


def _mapping(value: Any, made: dict[int, Any]) -> dict[Any, Any]:
    return {thaw(key, made): thaw(part, made) for key, part in value["value"]}


def generators_state() -> dict[str, Any]:
    """Return the state of the process's global random generators: torch's of all devices, NumPy's and Python's."""
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "numpy": np.random.get_state(),  # noqa: NPY002 (the generator that users' code draws from)
        "python": random.getstate(),
    }


def load_generators_state(state: Mapping[str, Any]) -> None:
    """Restore the result of :func:`generators_state`; missing devices are ignored."""
    torch.set_rng_state(state["torch"])
    for device, generator in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(generator, device)
    np.random.set_state(state["numpy"])  # noqa: NPY002
    random.setstate(state["python"])


def write_safetensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors by name into a file, atomically.

    Raises:
        OSError: the file cannot be written.
    """
    # Copies: tensors that share their memory are refused.
    own = {name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}
    write_atomically(path, lambda file: file.write(safetensors_torch.save(own)))


def read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in a file by name.

    Raises:
        ConfigError: the file cannot be read or is invalid.
    """
    try:
        return safetensors_torch.load(read_bytes(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (SafetensorError, KeyError, RuntimeError, ValueError) as error:
        reason = str(error).removeprefix("Error while deserializing: ")
        raise ConfigError(f"{path}: is no safetensors file: {reason}") from error
