from __future__ import annotations

import os
import signal
import threading

import pytest

from embodichain.agents.rl.utils.stop import InterruptedTraining, StopSignals


def test_nothing_happens_without_a_signal() -> None:
    with StopSignals() as stop:
        stop.check()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_takes_effect_at_the_next_check(number: signal.Signals, code: int) -> None:
    with StopSignals() as stop:
        os.kill(os.getpid(), number)
        with pytest.raises(InterruptedTraining, match=number.name) as caught:
            stop.check()
    assert caught.value.exit_code == code
    assert isinstance(caught.value, KeyboardInterrupt)


def test_second_signal_ends_the_process_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    with StopSignals():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert codes == [130]


def test_other_threads_have_no_signals() -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with StopSignals() as stop:
                stop.check()
        except ValueError as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []
