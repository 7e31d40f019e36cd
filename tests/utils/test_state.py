import io
import os
import random
from collections import Counter, OrderedDict, defaultdict, deque
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from embodichain.utils import ConfigError
from embodichain.utils.state import (
    attributes,
    freeze,
    generators_state,
    is_all_saved,
    is_data,
    load_attributes,
    load_generators_state,
    read_safetensors,
    thaw,
    write_safetensors,
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
        self.other: Any = object()
        self.mixed = [1, object()]


def through_a_file(content: dict[str, Any]) -> Any:
    buffer = io.BytesIO()
    torch.save(freeze(content), buffer)
    buffer.seek(0)
    return thaw(torch.load(buffer, weights_only=True))


def test_thawed_array_does_not_share_the_frozen_one_s_memory() -> None:
    frozen = freeze({"array": np.zeros(2)})
    thaw(frozen)["array"] += 1
    assert thaw(frozen)["array"].tolist() == [0, 0]


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


def test_generators_of_the_process_go_on_where_they_were() -> None:
    def draw() -> list[float]:
        return [float(torch.rand(1)), float(np.random.rand()), random.random()]  # noqa: NPY002

    state = through_a_file(generators_state())
    first = draw()
    draw()
    load_generators_state(state)
    assert draw() == first


class Phase(IntEnum):
    FIRST = 1


class Bounds(NamedTuple):
    low: float


@pytest.mark.parametrize(
    "value",
    [
        Phase.FIRST,
        [Phase.FIRST],
        {Phase.FIRST: 1},
        Bounds(0.0),
        np.array([None]),
        np.zeros(1, np.longdouble),
        np.zeros(1, "i4,f4"),
        np.zeros(1, ">f4"),
        np.ma.masked_equal([1.0], 1.0),
        defaultdict(int),
        Counter("a"),
        {np.int64(3): 1},
        np.array(["text"]),
        [{"__kind__": "array"}],
    ],
)
def test_what_a_checkpoint_cannot_hold_is_no_plain_data(value: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert not is_data(value)
    thing = Thing()
    assert is_all_saved(thing)
    if not isinstance(value, list | dict) or isinstance(value, defaultdict | Counter):
        thing.other = value
        assert not is_all_saved(thing)
        (line,) = capsys.readouterr().err.splitlines()
        assert "Thing: new episodes begin, since the state of these cannot be restored: other is a " in line


@pytest.mark.parametrize("is_copied_twice", [False, True])
def test_numbers_and_dictionaries_come_back_through_a_file(is_copied_twice: bool) -> None:
    content: dict[str, Any] = {
        "single": np.float32(0.1),
        "flag": np.bool_(True),
        "unsigned": np.zeros(2, np.ulonglong),
        "shape": torch.Size([2, 3]),
        "ordered": OrderedDict(b=1, a=2),
    }
    back = through_a_file(freeze(content) if is_copied_twice else content)
    for name, value in content.items():
        assert is_data(value)
        assert type(back[name]) is type(value)
        assert np.array_equal(back[name], value)
    assert back["single"].dtype == np.float32


def test_what_several_places_share_is_one_object_after_a_file() -> None:
    array, line = np.zeros(2), [1]
    back = through_a_file({"a": array, "b": [array, line], "c": {"line": line}})
    assert back["a"] is back["b"][0]
    assert back["b"][1] is back["c"]["line"]


def test_tensors_come_back_bit_for_bit(tmp_path: Path) -> None:
    tensors = {
        "weight": torch.randn(3, 2),
        "half": torch.randn(5).bfloat16(),
        "count": torch.tensor(7),
        "flags": torch.tensor([True, False]),
        "empty": torch.zeros(0, 4),
        "turned": torch.arange(6).view(2, 3).t(),
    }
    write_safetensors(tmp_path / "x.safetensors", tensors)
    back = read_safetensors(tmp_path / "x.safetensors")
    assert back.keys() == tensors.keys()
    for name, value in tensors.items():
        assert back[name].dtype == value.dtype
        assert torch.equal(back[name], value)


def test_writing_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"a": torch.ones(1)})
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_safetensors(path, {"a": torch.zeros(1)})
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["x.safetensors"]


@pytest.mark.parametrize(
    "content", [b"", b"\x10\x00\x00\x00\x00\x00\x00\x00{}", None], ids=["empty", "short", "absent"]
)
def test_other_files_are_refused_by_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"x\.safetensors: is no safetensors file"):
        read_safetensors(path)
