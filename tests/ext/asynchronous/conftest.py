"""The stress mode of the tests of asynchronous collection.

Tests that take the fixture ``jitter`` run with random delays wherever threads meet. EMBODICHAIN_STRESS=200 runs each of
them 200 times, each time with other delays, and lets the interpreter switch threads fifty times as often:

    EMBODICHAIN_STRESS=200 python -m pytest -q tests/agents/rl -k async
"""

from __future__ import annotations

import faulthandler
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from embodichain.agents.rl.buffer import VLABuffer
from embodichain.agents.rl.collector import AsyncCollector, InferencePolicy, PolicyPublisher
from tests.agents.rl.fakes import ScriptedEnv

REPEATS = int(os.environ.get("EMBODICHAIN_STRESS", "0"))
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
    (AsyncCollector, "_wake"),
    (ScriptedEnv, "step"),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "jitter" in metafunc.fixturenames:
        metafunc.parametrize("jitter", range(max(1, REPEATS)), indirect=True)


class Jitter:
    """Random delays.

    Args:
        seed: of the delays.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
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
def jitter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jitter]:
    jitter = Jitter(request.param)
    for owner, name in MEETINGS:
        monkeypatch.setattr(owner, name, jitter.around(getattr(owner, name)))
    interval = sys.getswitchinterval()
    if REPEATS:
        sys.setswitchinterval(1e-4)
    faulthandler.dump_traceback_later(HANG, exit=True)
    yield jitter
    faulthandler.cancel_dump_traceback_later()
    sys.setswitchinterval(interval)
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("collector")]
    assert not left, f"threads that go on: {left}"
