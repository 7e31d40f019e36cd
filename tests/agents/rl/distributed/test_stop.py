import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from embodichain.agents.rl.distributed.stop import InterruptedTraining, StopSignals

SIGNALS = [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)]


class Exit:
    """Takes the place of ``os._exit``: notes the code, and does nothing."""

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.called = threading.Event()

    def __call__(self, code: int) -> None:
        self.codes.append(code)
        self.called.set()

    def wait(self) -> list[int]:
        assert self.called.wait(10.0)
        return self.codes


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exit]:
    exits = Exit()
    monkeypatch.setattr(os, "_exit", exits)
    yield exits
    for thread in threading.enumerate():
        if thread.name == "rescue":  # else it would call the real one, which ends the tests
            thread.join(10.0)


def send(*numbers: signal.Signals) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_signal_takes_effect_at_the_next_check(number: signal.Signals, code: int) -> None:
    with StopSignals() as stop:
        send(number)
        with pytest.raises(InterruptedTraining, match=number.name) as caught:
            stop.check()
    assert caught.value.exit_code == code
    assert isinstance(caught.value, KeyboardInterrupt)


def test_handlers_are_as_before_afterwards() -> None:
    before = [signal.getsignal(number) for number, _ in SIGNALS]
    with StopSignals():
        assert [signal.getsignal(number) for number, _ in SIGNALS] != before
    assert [signal.getsignal(number) for number, _ in SIGNALS] == before


def test_ignored_hangup_stays_ignored_as_nohup_has_it() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as stop:
            send(signal.SIGHUP)
            stop.check()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_step_that_lasts_is_left_after_saving_what_is_finished(exits: Exit, capfd: pytest.CaptureFixture[str]) -> None:
    saved: list[str] = []
    with StopSignals(grace=0.01) as stop:
        stop.rescue = lambda: saved.append("it") or "Saved: all of it"  # type: ignore[func-returns-value]
        send(signal.SIGTERM)
        assert exits.wait() == [143]
    assert saved == ["it"]
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "SIGTERM: stopping after the present step, or in 0 s; once more stops now"
    assert lines[1] == "SIGTERM: the present step was not waited for. Saved: all of it"


def test_second_signal_saves_at_once_with_the_first_ones_code(exits: Exit) -> None:
    saved: list[str] = []
    with StopSignals(grace=1000.0) as stop:
        stop.rescue = lambda: saved.append("it") or ""  # type: ignore[func-returns-value]
        send(signal.SIGINT, signal.SIGTERM)
        assert exits.wait() == [130]
    assert saved == ["it"]


def test_third_signal_ends_the_process_where_saving_hangs(exits: Exit) -> None:
    hanging = threading.Event()

    def hang() -> str:
        hanging.set()
        exits.called.wait(10.0)
        return ""

    with StopSignals(grace=1000.0) as stop:
        stop.rescue = hang
        send(signal.SIGINT, signal.SIGINT)
        assert hanging.wait(10.0)
        send(signal.SIGTERM)
        assert exits.wait()[0] == 143


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


def test_work_that_ends_within_the_grace_is_left_alone(exits: Exit) -> None:
    with StopSignals(grace=0.1) as stop:
        send(signal.SIGTERM)
        with pytest.raises(InterruptedTraining):
            stop.check()
    time.sleep(0.15)
    assert exits.codes == []
