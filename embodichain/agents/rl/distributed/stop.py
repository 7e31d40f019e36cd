"""Ends a training on SIGINT, SIGTERM and SIGHUP where nothing is half done."""

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

GRACE = 20.0  # s; torchrun, Kubernetes and others kill 30 s after the signal
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask for an end. A process that has started trainings passes them on."""


class InterruptedTraining(KeyboardInterrupt):
    """A signal asked for an end.

    Attributes:
        number: of the signal.
        exit_code: 128 + its number, as shells have it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.exit_code = 128 + number


@contextmanager
def stopping_together(process_group: ProcessGroup) -> Iterator[None]:
    """Do something without collective operations; where one rank stops in it or before its end, all stop at its end.

    Raises:
        InterruptedTraining: a signal came to some rank.
    """
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
    """Handle ``SIGNALS`` by a function while this is entered; one that is ignored, as by ``nohup``, stays so.

    Signals are the main thread's; in another thread this does nothing.
    """
    is_main = threading.current_thread() is threading.main_thread()
    handled = [number for number in SIGNALS if is_main and signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in handled}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class StopSignals:
    """Takes note of SIGINT, SIGTERM and SIGHUP while it is entered; :meth:`check` then ends the work.

    Where the work does not come to a check, because a step hangs, a thread of its own ends the process: ``grace``
    seconds after the first signal or at the second, when it has called ``rescue``; at the third at once. It hears of
    signals where the main thread cannot, in a call that does not return; only one that holds the interpreter's lock
    stops it, too. Signals are the main thread's; in another thread this does nothing, nor does SIGHUP where it was
    ignored (``nohup``).

    Attributes:
        rescue: saves what there is, from another thread than the work's; returns a line about it, or an empty text.
    """

    def __init__(self, grace: float = GRACE) -> None:
        """Set up.

        Args:
            grace: time for the present step, and for whatever the work does at its end, s.
        """
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
            # The interpreter writes the number of each signal there as it comes, whatever the main thread does.
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
        """Wait for signals, and end the process where the work does not; until the writer is closed."""
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
        """Save what there is, and end the process, which may hang anywhere."""
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
