"""Changes in the rows of a mask. Shapes: N environments."""

from collections import deque, namedtuple
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.sim.rows import ChosenRows, Snapshot, changing_rows, row_numbers

MASK = torch.tensor([True, False, True])


def owner() -> SimpleNamespace:
    return SimpleNamespace(a=torch.zeros(3), b=torch.zeros(3, 2), one=torch.zeros(1, 2), number=1.0, name="x")


def test_rows_outside_the_mask_stay_however_they_are_changed() -> None:
    thing = owner()
    kept = thing.a
    with changing_rows([thing], MASK):
        thing.a += 1.0
        thing.b = thing.b + 2.0
        thing.number = 2.0
    assert thing.a is kept
    assert thing.a.tolist() == [1.0, 0.0, 1.0]
    assert thing.b.tolist() == [[2.0, 2.0], [0.0, 0.0], [2.0, 2.0]]
    assert thing.number == 2.0


def test_what_numpy_writes_counts_too() -> None:
    thing = owner()
    with changing_rows([thing], MASK):
        thing.a.numpy()[:] = 5.0
    assert thing.a.tolist() == [5.0, 0.0, 5.0]


def test_row_for_all_becomes_one_for_each() -> None:
    thing = owner()
    with changing_rows([thing], MASK):
        thing.one = thing.one.expand(3, 2) + 1.0
    assert thing.one.tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]


def test_one_tensor_under_two_names_stays_one() -> None:
    thing = owner()
    thing.same = thing.a
    with changing_rows([thing], MASK):
        thing.a = thing.same = thing.a + 1.0
    assert thing.same is thing.a
    assert thing.a.tolist() == [1.0, 0.0, 1.0]


def test_tensor_of_another_size_is_left_as_it_is() -> None:
    thing = SimpleNamespace(table=torch.zeros(4))
    with changing_rows([thing], MASK):
        thing.table += 1.0
    assert thing.table.tolist() == [1.0] * 4


def test_rows_in_dictionaries_and_lists_are_put_back_too() -> None:
    thing = SimpleNamespace(notes={"pose": torch.zeros(3, 2)}, frames=[torch.zeros(3), torch.zeros(3)])
    with changing_rows([thing], MASK):
        thing.notes["pose"] = thing.notes["pose"] + 1.0
        thing.frames[1] += 1.0
    assert thing.notes["pose"].tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    assert thing.frames[1].tolist() == [1.0, 0.0, 1.0]


def chosen() -> ChosenRows:
    env_ids = ChosenRows.of_all(3, torch.device("cpu"))
    env_ids.mask = MASK
    return env_ids


def test_chosen_rows_index_as_all_rows_do() -> None:
    env_ids, values = chosen(), torch.arange(3.0)
    assert len(env_ids) == 3
    assert type(values[env_ids]) is Tensor
    assert values[env_ids].tolist() == [0.0, 1.0, 2.0]
    assert values.index_fill(0, env_ids, 5.0).tolist() == [5.0] * 3


@pytest.mark.parametrize("name", ["tolist", "cpu", "numpy", "item", "__iter__", "__array__", "__int__", "__bool__"])
def test_numbers_of_chosen_rows_are_read_only_by_asking(name: str) -> None:
    with pytest.raises(RuntimeError, match="which environments env_ids means is known on the device alone"):
        getattr(chosen(), name)()


def test_row_numbers_are_the_masks() -> None:
    plain = torch.tensor([1, 2])
    assert row_numbers(chosen()).tolist() == [0, 2]
    assert row_numbers(plain) is plain


Pair = namedtuple("Pair", ["value", "count"])


def test_snapshot_restores_into_the_same_objects() -> None:
    kept, replaced = torch.zeros(3), torch.zeros(3)
    array, history = np.zeros(3), deque([torch.zeros(2)], maxlen=2)
    generator = torch.Generator().manual_seed(1)
    data: dict[str, Any] = {"kept": kept, "replaced": replaced, "array": array, "history": history, "count": 1}
    data |= {"generator": generator, "td": TensorDict({"a": torch.zeros(3)}, [3])}
    snapshot = Snapshot(data)
    kept += 1
    array += 1
    history.append(torch.ones(2))
    drawn = torch.rand(2, generator=generator)
    data["replaced"], data["count"], data["new"] = torch.ones(3), 2, 5
    data["td"]["a"] += 1
    data["td"]["b"] = torch.ones(3)
    assert snapshot.restore() is data
    assert data["kept"] is kept
    assert data["replaced"] is replaced
    assert kept.tolist() == array.tolist() == replaced.tolist() == data["td"]["a"].tolist() == [0.0] * 3
    assert [frame.tolist() for frame in history] == [[0.0, 0.0]]
    assert history.maxlen == 2
    assert data["count"] == 1
    assert "new" not in data
    assert list(data["td"].keys()) == ["a"]
    assert torch.equal(torch.rand(2, generator=generator), drawn)


def test_rows_of_the_mask_are_of_now_and_the_others_of_then() -> None:
    written, history = torch.zeros(3), [torch.zeros(3, 2), torch.zeros(3, 2)]
    pair, array, grown = Pair(torch.zeros(3), 1), np.zeros((3, 1)), torch.zeros(1)
    data: dict[str, Any] = {"written": written, "history": history, "pair": pair, "array": array, "grown": grown}
    data |= {"other": torch.zeros(2), "td": TensorDict({"a": torch.zeros(3)}, [3])}
    snapshot = Snapshot(data)
    written += 1
    data |= {"pair": Pair(torch.ones(3), 2), "array": np.ones((3, 1)), "grown": torch.ones(3), "other": torch.ones(2)}
    data["history"] = [history[1], torch.ones(3, 2)]
    data["td"]["a"] += 1
    now = snapshot.with_rows_of(data, MASK)
    assert now["written"] is written
    assert written.tolist() == now["pair"].value.tolist() == now["td"]["a"].tolist() == [1.0, 0.0, 1.0]
    assert now["array"][:, 0].tolist() == now["grown"].tolist() == [1.0, 0.0, 1.0]
    assert [frame[:, 0].tolist() for frame in now["history"]] == [[0.0] * 3, [1.0, 0.0, 1.0]]
    assert now["pair"].count == 2
    assert now["other"].tolist() == [1.0, 1.0]


def test_copy_is_apart_from_the_data() -> None:
    data: dict[str, Any] = {
        "frames": [torch.zeros(3)],
        "array": np.zeros(2),
        "td": TensorDict({"a": torch.zeros(3)}, [3]),
    }
    copy = Snapshot(data).copy()
    data["frames"][0].add_(1)
    data["td"]["a"].add_(1)
    assert copy["frames"][0].tolist() == copy["td"]["a"].tolist() == [0.0] * 3
