"""The state of objects as plain data for a checkpoint.

Plain data are tensors, TensorDicts, NumPy arrays, numbers, texts, None, torch generators, and lists, tuples, deques and
dictionaries of them. Instances of users' subclasses of these are not: a checkpoint does not name a user's class.
"""

import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.utils import logger
from embodichain.utils.errors import ConfigError
from embodichain.utils.files import read_bytes, write_atomically

_KIND = "__kind__"  # marks a dictionary that encodes another type
_SIMPLE = (type(None), bool, int, float, str)
_SEQUENCES = (list, tuple, torch.Size, deque)
_SHARED = (Tensor, TensorDict, np.ndarray, torch.Generator, list, deque, dict)  # one object may be in several places


def is_data(value: Any) -> bool:
    """Return whether a value is plain data throughout."""
    kind = type(value)
    if kind in (*_SIMPLE, Tensor, torch.Generator):
        return True
    if kind in _SEQUENCES:
        return all(map(is_data, value))
    if kind in (dict, OrderedDict):
        return _KIND not in value and all(map(_is_key, value)) and all(map(is_data, value.values()))
    if kind is TensorDict:
        return all(map(is_data, value.values()))
    if kind is not np.ndarray and not isinstance(value, np.generic):
        return False
    dtype = value.dtype
    # torch has the type; the size of long doubles ("g") varies.
    is_known = dtype.isnative and dtype.kind in "biufc" and dtype.char not in "gG"
    return is_known and kind in (np.ndarray, dtype.type)


def _is_key(value: Any) -> bool:
    return all(map(_is_key, value)) if type(value) is tuple else type(value) in _SIMPLE


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


def declared_state(owner: Any) -> dict[str, Any]:
    """Return the attributes that change after an object was built, its ``state_names``, by name, without copies."""
    return {name: getattr(owner, name) for name in owner.state_names}


def freeze(value: Any, copies: dict[int, tuple[Any, Any]] | None = None) -> Any:
    """Return a copy of plain data made of dictionaries, lists, tuples, tensors, numbers and texts alone.

    Repeated objects are copied once; ``copies`` has originals and copies by the original's id. A frozen copy is
    frozen to an equal one.
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
        # torch knows one of C's names for integers of one size.
        return {_KIND: "array", "value": torch.from_numpy(np.array(value).view(value.dtype.str))}
    if isinstance(value, np.generic):
        return {_KIND: "scalar", "value": _frozen(np.asarray(value), copies)}
    if isinstance(value, torch.Generator):
        return {_KIND: "generator", "value": value.get_state(), "device": str(value.device)}
    if isinstance(value, deque):
        return {_KIND: "deque", "value": [freeze(part, copies) for part in value], "maxlen": value.maxlen}
    if isinstance(value, dict):
        return type(value)((key, freeze(part, copies)) for key, part in value.items())
    if type(value) in _SEQUENCES:
        return type(value)([freeze(part, copies) for part in value])
    return value


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
            return value["value"].numpy().copy()
        case "scalar":
            return thaw(value["value"], made)[()]
        case "generator":
            generator = torch.Generator(value["device"])
            generator.set_state(value["value"])
            return generator
        case "deque":
            return deque([thaw(part, made) for part in value["value"]], value["maxlen"])
    return type(value)((key, thaw(part, made)) for key, part in value.items())


def generators_state() -> dict[str, Any]:
    """Return the state of the process's global random generators: torch's of all devices, NumPy's and Python's."""
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "numpy": np.random.get_state(),  # noqa: NPY002 (the generator that users' code draws from)
        "python": random.getstate(),
    }


def seed_generators(seed: int) -> None:
    """Seed the global generators of torch, NumPy and Python."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 (the generator that users' code draws from)
    random.seed(seed)


def load_generators_state(state: Mapping[str, Any]) -> None:
    """Restore the result of :func:`generators_state`; missing devices are ignored."""
    torch.set_rng_state(state["torch"])
    for device, generator in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(generator, device)
    np.random.set_state(state["numpy"])  # noqa: NPY002
    random.setstate(state["python"])


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by name into a file, atomically (https://github.com/huggingface/safetensors)."""
    # Copies: tensors that share their memory are refused.
    own = {name: value.detach().cpu().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}
    write_atomically(path, lambda file: file.write(safetensors.torch.save(own)))


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors in a file by name; a ConfigError where it cannot be read or is invalid. No code runs."""
    try:
        return safetensors.torch.load(read_bytes(path))
    except (safetensors.SafetensorError, KeyError, OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{path}: is no safetensors file: {error}") from error
