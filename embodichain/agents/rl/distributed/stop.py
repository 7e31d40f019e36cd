"""Ends a training on SIGINT, SIGTERM and SIGHUP after the present step."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from embodichain.utils.system import stop_signals

GRACE = 20.0  # s; torchrun, Kubernetes and others kill 30 s after the signal
SIGNALS = stop_signals()
"""Signals that end a training. A process that has started trainings forwards them."""


class InterruptedTraining(KeyboardInterrupt):
    """Raised after a signal. ``number`` is the signal's, and ``exit_code`` 128 + ``number``, as in shells."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.exit_code = 128 + number


@contextmanager
def signals_to(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle ``SIGNALS`` by a function in the block, except ignored ones (``nohup``). Only in the main thread."""
    is_main = threading.current_thread() is threading.main_thread()
    handled = [number for number in SIGNALS if is_main and signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in handled}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class StopSignals:
    """Records SIGINT, SIGTERM and SIGHUP while it is entered; :meth:`check` then raises.

    If the present step lasts, another thread ends the process: ``grace`` seconds after the first signal or at the
    second, after calling ``rescue``; at the third at once. In another thread than the main one this does nothing.

    Args:
        grace: time for the present step and the work's end, s.
    """

    def __init__(self, grace: float = GRACE) -> None:
        # Saves the finished iterations, called in another thread; returns a line for the terminal, or "".
        self.rescue: Callable[[], str] = str
        self._grace = grace
        self._received: list[int] = []
        self._timers: list[threading.Timer] = []
        self._handlers = signals_to(self._take)

    def __enter__(self) -> "StopSignals":
        self._handlers.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._handlers.__exit__(None, None, None)
        for timer in self._timers:
            timer.cancel()

    def check(self) -> None:
        """Raise InterruptedTraining if a signal came."""
        if self._received:
            raise InterruptedTraining(self._received[0])

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._received.append(number)
        if len(self._received) > 2:
            os._exit(128 + number)  # files on the disk are complete at any moment
        grace = 0.0
        if len(self._received) == 1:
            grace, name = self._grace, signal.Signals(number).name
            _say(f"{name}: stopping after the present step, or in {grace:.0f} s; once more stops now")
        timer = threading.Timer(grace, self._end)
        timer.name, timer.daemon = "rescue", True
        timer.start()
        self._timers.append(timer)

    def _end(self) -> None:
        """Rescue, and end the process, which may hang anywhere."""
        number = self._received[0]
        for timer in self._timers:
            timer.cancel()
        try:
            saved = self.rescue()
            _say(f"{signal.Signals(number).name}: the present step was not waited for. {saved}".rstrip())
        finally:
            for child in multiprocessing.active_children():
                child.kill()
            os._exit(128 + number)


def _say(line: str) -> None:
    """Write a line to the terminal, if there is one; not through a logger, in which the main thread may hang."""
    with suppress(OSError):
        os.write(2, f"{line}\n".encode(errors="replace"))
