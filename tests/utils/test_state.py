from __future__ import annotations

import io
import random
from collections import deque
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from embodichain.utils.state import (
    attributes,
    freeze,
    generators_state,
    is_data,
    load_attributes,
    load_generators_state,
    thaw,
)


class Thing:
    """Remembers all sorts of things."""

    def __init__(self) -> None:
        self.tensor = torch.arange(3.0)
        self.same = self.tensor
        self.array = np.arange(4, dtype=np.uint16)
        self.queue = deque([torch.zeros(1), torch.ones(1)], maxlen=2)
        self.nested: dict[Any, Any] = {"a": [(1, 2.5, None, "x", True)], (1, 2): np.float64(0.5)}
        self.entries = TensorDict({"obs": torch.ones(2, 3), "in": {"side": torch.zeros(2)}}, batch_size=[2])
        self.generator = torch.Generator().manual_seed(5)
        self.other = object()
        self.mixed = [1, object()]


def through_a_file(content: dict[str, Any]) -> Any:
    buffer = io.BytesIO()
    torch.save(freeze(content), buffer)
    buffer.seek(0)
    return thaw(torch.load(buffer, weights_only=True))


def test_plain_attributes_come_back_through_a_file_as_they_were() -> None:
    thing, fresh = Thing(), Thing()
    thing.tensor = thing.same = torch.tensor([7.0])
    thing.array += 1
    thing.queue.append(torch.full((1,), 9.0))
    torch.rand(3, generator=thing.generator)
    load_attributes(fresh, through_a_file(attributes(thing, exclude=("nested",))))
    assert torch.equal(fresh.tensor, torch.tensor([7.0]))
    assert fresh.tensor is fresh.same  # one object stays one
    assert fresh.array.tolist() == [1, 2, 3, 4]
    assert fresh.array.dtype == np.uint16
    assert [float(x) for x in fresh.queue] == [1, 9]
    assert fresh.queue.maxlen == 2
    assert torch.equal(fresh.entries["in", "side"], torch.zeros(2))
    assert fresh.entries.batch_size == (2,)
    assert torch.equal(torch.rand(2, generator=fresh.generator), torch.rand(2, generator=thing.generator))
    assert through_a_file({"n": thing.nested}) == {"n": {"a": [(1, 2.5, None, "x", True)], (1, 2): 0.5}}


def test_what_is_no_plain_data_is_left_alone() -> None:
    thing = Thing()
    assert {"other", "mixed"}.isdisjoint(attributes(thing))
    other = thing.other
    load_attributes(thing, {"other": None, "mixed": [], "unknown": 1})
    assert thing.other is other
    assert len(thing.mixed) == 2
    assert not is_data({"a": object()})


def test_frozen_copy_does_not_follow_its_original() -> None:
    thing = Thing()
    copy = freeze(attributes(thing))
    thing.tensor += 1
    thing.array[:] = 0
    thing.nested["a"].append(1)
    assert copy["tensor"].tolist() == [0, 1, 2]
    assert copy["array"]["value"].tolist() == [0, 1, 2, 3]
    assert len(copy["nested"]["a"]) == 1


def test_generators_of_the_process_go_on_where_they_were() -> None:
    def draw() -> list[float]:
        return [float(torch.rand(1)), float(np.random.rand()), random.random()]  # noqa: NPY002

    state = through_a_file(generators_state())
    first = draw()
    draw()
    load_generators_state(state)
    assert draw() == first
