"""Data put back, all or some rows. Shapes: N = 3 environments."""

from __future__ import annotations

from collections import deque, namedtuple
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from embodichain.utils.snapshots import Snapshot

MASK = torch.tensor([True, False, True])
Pair = namedtuple("Pair", ["value", "count"])


def test_what_changed_in_place_or_was_replaced_is_put_back_into_the_same_objects() -> None:
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


def test_constants_that_nobody_may_write_into_are_let_be() -> None:
    data = {"same": torch.zeros(1).expand(3, 2)}
    snapshot = Snapshot(data)
    assert snapshot.restore()["same"] is snapshot.with_rows_of(data, MASK)["same"]


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
