"""Values computed once for each state of the physics."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from embodichain.lab.sim.backend.base import StateCache, cached_per_state
from embodichain.utils import ConfigError

CALLS: list[str] = []


def owner() -> Any:
    backend: Any = SimpleNamespace(version=0)
    return SimpleNamespace(state_cache=StateCache(backend), backend=backend)


@cached_per_state
def offset(env: Any, target: Tensor, scale: float = 1.0) -> Tensor:
    CALLS.append("offset")
    return target * scale


@cached_per_state
def other(env: Any, target: Tensor) -> Tensor:
    CALLS.append("other")
    return -target


def test_value_is_computed_once_for_a_state_and_its_arguments() -> None:
    CALLS.clear()
    env, target = owner(), torch.ones(2)
    assert offset(env, target) is offset(env, target)
    assert offset(env, target, 2.0).tolist() == offset(env, target, scale=2.0).tolist() == [2.0, 2.0]
    assert other(env, target).tolist() == [-1.0, -1.0]
    assert CALLS == ["offset", "offset", "offset", "other"]
    env.backend.version = 1
    offset(env, target)
    assert CALLS[4:] == ["offset"]


def test_value_of_a_changed_tensor_is_computed_anew() -> None:
    env, target = owner(), torch.ones(2)
    offset(env, target)
    target += 1.0
    assert offset(env, target).tolist() == [2.0, 2.0]
    offset(env, target=target)
    target += 1.0
    assert offset(env, target=target).tolist() == [3.0, 3.0]
    assert offset(env, torch.zeros(2)).tolist() == [0.0, 0.0]


def test_objects_do_not_share_values() -> None:
    one, two, target = owner(), owner(), torch.ones(2)
    assert offset(one, target) is not offset(two, target)


def test_value_that_was_written_into_is_an_error() -> None:
    env, target = owner(), torch.ones(2)
    value = offset(env, target)
    view = value[:1]
    view *= 0.5
    with pytest.raises(ConfigError, match=r"^a result of offset was changed in place"):
        offset(env, target)
    env.backend.version = 1
    assert offset(env, target).tolist() == [1.0, 1.0]
