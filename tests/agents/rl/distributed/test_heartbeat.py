"""The signs of life alone, on a store that is a dictionary; the limit is a few hundredths of a second."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from embodichain.agents.rl.distributed.heartbeat import (
    PATIENCE,
    FolderStore,
    Heartbeat,
    HungProcessError,
    LostProcessError,
)

LIMIT = 0.05


class DictStore:
    """Texts by name, shared by threads."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.is_gone = False

    def set(self, key: str, value: str) -> None:
        self.texts[key] = value.encode()

    def multi_get(self, keys: list[str]) -> list[bytes]:
        if self.is_gone:
            raise RuntimeError("no answer")
        return [self.texts[key] for key in keys]


class Two:
    """Rank 0, whose thread runs, and rank 1, which says what it is told to."""

    def __init__(self, settled: bool = True) -> None:
        self.store = DictStore()
        self.hung: list[HungProcessError] = []
        self.has_hung = threading.Event()
        self.rank0, self.rank1 = (Heartbeat(self.store, rank, 2, self.note) for rank in (0, 1))
        self.rank0.limit = LIMIT
        for rank in (self.rank0, self.rank1):
            rank.publish()
        if settled:
            self.rank0.settle()
        self.rank0.start()

    def note(self, error: HungProcessError) -> None:
        self.hung.append(error)
        self.has_hung.set()

    def wait_until_lost(self, speaks: bool = False) -> str:
        since = time.monotonic()
        with self.rank0.waiting("sum"):
            for _ in range(1000):
                time.sleep(0.01)
                if speaks:
                    self.rank1.publish()
                try:
                    self.rank0.check_others(since)
                except LostProcessError as error:
                    self.rank0.close()
                    return str(error)
        self.rank0.close()
        return "never"


def test_silent_process_is_lost() -> None:
    assert Two().wait_until_lost() == "no sign of life from rank 1 for 0 s"


def test_process_that_speaks_is_waited_for() -> None:
    two = Two()
    two.rank0.limit = 5.0
    with two.rank0.waiting("sum"):
        time.sleep(0.1)
        two.rank0.check_others(since=time.monotonic() - 100)  # it works, and has said so less than 5 s ago
    two.rank0.close()


def test_all_that_wait_for_each_other_are_out_of_step() -> None:
    two = Two()
    with two.rank1.waiting("gather"):
        text = two.wait_until_lost(speaks=True)
    assert text.startswith(
        "all processes wait for each other, they are out of step (rank 0: waiting 1 sum; rank 1: waiting 1"
    )


def test_store_that_does_not_answer_is_lost() -> None:
    two = Two()
    two.store.is_gone = True
    assert two.wait_until_lost().startswith("the store of the rendezvous has not answered for")


def test_main_thread_without_a_step_hangs_and_its_place_is_told() -> None:
    two = Two()
    assert two.has_hung.wait(10)
    two.rank0.close()
    text = str(two.hung[0])
    assert text.startswith("rank 0 has made no step for 0 s (trainer.hang_seconds); it is here:")
    assert "assert two.has_hung.wait(10)" in text


@pytest.mark.parametrize("state", ["busy", "waiting", "at the beginning"])
def test_hanging_is_not_what_takes_its_time_for_a_reason(state: str) -> None:
    two = Two(settled=state != "at the beginning")
    with two.rank0.busy() if state == "busy" else two.rank0.waiting("sum"):
        if state == "at the beginning":
            two.rank0._state = "working"
        assert not two.has_hung.wait(min(4, PATIENCE / 3) * LIMIT)
    two.rank0.close()


# --- the store of processes on one machine ---


def test_folder_has_the_last_text_of_each_key(tmp_path: Path) -> None:
    store, other = FolderStore(tmp_path / "alive"), FolderStore(tmp_path / "alive")
    store.set("alive/0", "1")
    other.set("alive/1", "2")
    store.set("alive/0", "3")
    assert other.multi_get(["alive/0", "alive/1"]) == [b"3", b"2"]
    assert len(list((tmp_path / "alive").iterdir())) == 2


def test_folder_that_is_gone_is_a_store_that_does_not_answer(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "alive")
    (tmp_path / "alive").rmdir()
    with pytest.raises(RuntimeError, match="cannot be written"):
        store.set("alive/0", "1")
    with pytest.raises(RuntimeError, match="cannot be read"):
        store.multi_get(["alive/0"])
