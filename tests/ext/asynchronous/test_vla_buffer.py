"""Legend: N envs, T rollout steps."""

import threading
from collections import Counter

import pytest
import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer import BufferClosedError, VLABuffer
from tests.ext.asynchronous.conftest import Jitter

WAIT = 30.0  # seconds that nobody needs unless something hangs


def rollout(number: int = 0) -> TensorDict:
    return TensorDict({"number": torch.full((2, 3), number)}, batch_size=[2, 3])


def number_of(taken: TensorDict) -> int:
    return int(taken["number"][0, 0])


def in_thread(target: object) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_rollouts_come_out_in_the_order_in_which_they_went_in() -> None:
    buffer = VLABuffer(3)
    for number in range(3):
        buffer.add_rollout(rollout(number))
    assert buffer.is_full()
    assert [number_of(buffer.get()) for _ in range(3)] == [0, 1, 2]
    assert len(buffer) == 0


@pytest.mark.parametrize("action", ["get", "add"])
def test_closing_wakes_whoever_waits(action: str, jitter: Jitter) -> None:
    buffer, raised = VLABuffer(1), []
    if action == "add":
        buffer.add_rollout(rollout())

    def wait() -> None:
        try:
            buffer.get() if action == "get" else buffer.add_rollout(rollout())
        except BufferClosedError as error:
            raised.append(error)

    threads = [in_thread(wait) for _ in range(3)]
    jitter.sleep()
    buffer.close()
    for thread in threads:
        thread.join(WAIT)
    assert len(raised) == 3


def test_get_raises_the_error_that_closed_the_buffer() -> None:
    buffer = VLABuffer(1)
    buffer.add_rollout(rollout())  # what is there does not hide it
    buffer.close(RuntimeError("the robot fell off the table"))
    with pytest.raises(RuntimeError, match="fell off"):
        buffer.get()
    with pytest.raises(BufferClosedError):
        buffer.add_rollout(rollout())
    buffer.reopen()
    assert number_of(buffer.get()) == 0


def test_dropped_rollouts_are_counted() -> None:
    buffer = VLABuffer(3)
    for number in range(3):
        buffer.add_rollout(rollout(number))
    buffer.get()
    assert buffer.clear() == 2
    assert buffer.get_stats() == {"produced": 3, "consumed": 1, "dropped": 2, "in_flight": 0, "capacity": 3}


def test_rollouts_are_consumed_once_and_counts_add_up(jitter: Jitter) -> None:
    buffer, taken, lock = VLABuffer(2), Counter[int](), threading.Lock()
    seen: list[dict[str, int]] = []

    def produce(first: int) -> None:
        for number in range(first, 20, 2):
            buffer.add_rollout(rollout(number))
            seen.append(buffer.get_stats())

    def consume() -> None:
        for _ in range(10):
            number = number_of(buffer.get())
            with lock:
                taken[number] += 1
            seen.append(buffer.get_stats())

    threads = [in_thread(lambda first=first: produce(first)) for first in (0, 1)]
    threads += [in_thread(consume) for _ in range(2)]
    for thread in threads:
        thread.join(WAIT)
    assert taken == Counter(range(20))
    for stats in seen:
        assert stats["produced"] == stats["consumed"] + stats["dropped"] + stats["in_flight"]
        assert 0 <= stats["in_flight"] <= 2


def test_flattened_rollout_is_refused() -> None:
    with pytest.raises(ValueError, match=r"batch size \[N, T\+1\], got \[6\]"):
        VLABuffer(1).add_rollout(rollout().reshape(-1))
