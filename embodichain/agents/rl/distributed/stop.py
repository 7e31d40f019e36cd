"""Ends a training on SIGINT, SIGTERM and SIGHUP after the present step."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType

import torch

from embodichain.agents.rl.distributed import ProcessGroup
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
def stopping_together(process_group: ProcessGroup) -> Iterator[None]:
    """Run a block without collective operations; a signal to one rank raises InterruptedTraining on all at its end."""
    number = 0
    try:
        yield
    except InterruptedTraining as stop:
        number = stop.number
    number = int(process_group.gather(torch.tensor(number)).max())
    if number:
        raise InterruptedTraining(number)


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

    If a step hangs, a watchdog thread ends the process: ``grace`` seconds after the first signal or at the second,
    after calling ``rescue``; at the third at once. It receives signals while the main thread is in a call that does not
    return, unless that call holds the interpreter's lock. In another thread than the main one this does nothing.

    Args:
        grace: time for the present step and the work's end, s.

    Attributes:
        rescue: saves the finished iterations, called in another thread; returns a line for the terminal, or "".
    """

    def __init__(self, grace: float = GRACE) -> None:
        self.rescue: Callable[[], str] = str
        self._grace = grace
        self._received: int | None = None
        self._handlers = signals_to(self._take)
        self._wakeup_before = -1
        self._pipe: tuple[socket.socket, socket.socket] | None = None
        self._thread = threading.Thread(target=self._watch, name="signals", daemon=True)

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._pipe = socket.socketpair()
            self._pipe[1].setblocking(False)
            self._handlers.__enter__()
            # The interpreter writes each signal's number there at once, whatever the main thread does.
            self._wakeup_before = signal.set_wakeup_fd(self._pipe[1].fileno(), warn_on_full_buffer=False)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pipe is not None:
            signal.set_wakeup_fd(self._wakeup_before)
            self._handlers.__exit__(None, None, None)
            self._pipe[1].close()
            self._thread.join()
            self._pipe[0].close()

    def check(self) -> None:
        """Raise InterruptedTraining if a signal came."""
        if self._received is not None:
            raise InterruptedTraining(self._received)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._received is None:
            self._received = number

    def _watch(self) -> None:
        """Wait for signals until the pipe is closed, and end the process if the work does not."""
        assert self._pipe is not None
        reader, count, deadline = self._pipe[0], 0, math.inf
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                threading.Thread(target=self._end, name="rescue", daemon=True).start()
                deadline = left = math.inf
            reader.settimeout(None if left == math.inf else left)
            try:
                received = reader.recv(64)
            except TimeoutError:
                continue
            if not received:
                return
            for number in (number for number in received if number in SIGNALS):
                count += 1
                if count == 1:
                    self._received = number
                    deadline = time.monotonic() + self._grace
                    _say(
                        f"{signal.Signals(number).name}: stopping after the present step, or in {self._grace:.0f} s; "
                        "once more stops now"
                    )
                elif count == 2:
                    deadline = min(deadline, time.monotonic())
                else:
                    os._exit(128 + number)  # files on the disk are complete at any moment

    def _end(self) -> None:
        """Rescue, and end the process, which may hang anywhere."""
        assert self._received is not None
        try:
            saved = self.rescue()
            _say(f"{signal.Signals(self._received).name}: the present step was not waited for. {saved}".rstrip())
        finally:
            for child in multiprocessing.active_children():
                child.kill()
            os._exit(128 + self._received)


def _say(line: str) -> None:
    """Write a line to the terminal, if there is one; not through a logger, in which the main thread may hang."""
    with suppress(OSError):
        os.write(2, f"{line}\n".encode(errors="replace"))
