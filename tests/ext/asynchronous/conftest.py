"""Random delays wherever threads meet, for the tests of asynchronous collection that take the fixture ``jitter``."""

import faulthandler
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from embodichain.agents.rl.buffer import VLABuffer
from embodichain.agents.rl.collector import AsyncCollector, InferencePolicy, PolicyPublisher
from tests.agents.rl.fakes import ScriptedEnv

HANG = 60.0  # seconds until a test that hangs ends the run, with the stacks of all threads

# Where threads meet.
MEETINGS = (
    (VLABuffer, "add_rollout"),
    (VLABuffer, "get"),
    (PolicyPublisher, "publish"),
    (InferencePolicy, "get_action"),
    (InferencePolicy, "get_value"),
    (AsyncCollector, "_begin"),
    (AsyncCollector, "_hand_over"),
    (AsyncCollector, "_end"),
    (ScriptedEnv, "step"),
)


class Jitter:
    """Random delays."""

    def __init__(self) -> None:
        self._random = random.Random(0)
        self._lock = threading.Lock()

    def sleep(self) -> None:
        with self._lock:
            kind, length = self._random.random(), self._random.random()
        if kind < 0.1:
            time.sleep(0.002 * length)
        elif kind < 0.4:
            time.sleep(0.0002 * length)

    def around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def delayed(*args: Any, **kwargs: Any) -> Any:
            self.sleep()
            result = method(*args, **kwargs)
            self.sleep()
            return result

        return delayed


@pytest.fixture
def jitter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Jitter]:
    jitter = Jitter()
    for owner, name in MEETINGS:
        monkeypatch.setattr(owner, name, jitter.around(getattr(owner, name)))
    faulthandler.dump_traceback_later(HANG, exit=True)
    yield jitter
    faulthandler.cancel_dump_traceback_later()
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("collector")]
    assert not left, f"threads that go on: {left}"
