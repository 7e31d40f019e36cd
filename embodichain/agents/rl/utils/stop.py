"""Ends a training on SIGINT and SIGTERM where nothing is half done."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

import torch

from embodichain.agents.rl.distributed import Ranks

__all__ = ["InterruptedTraining", "StopSignals", "stopping_together"]


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
def stopping_together(ranks: Ranks) -> Iterator[None]:
    """Do something without collective operations; where one rank stops in it or before its end, all stop at its end.

    Raises:
        InterruptedTraining: a signal came to some rank.
    """
    number = 0
    try:
        yield
    except InterruptedTraining as stop:
        number = stop.number
    number = int(ranks.gather(torch.tensor(number)).max())
    if number:
        raise InterruptedTraining(number)


class StopSignals:
    """Takes note of SIGINT and SIGTERM while it is entered; :meth:`check` then ends the work.

    The second signal ends the process at once. Signals are the main thread's; in another thread this does nothing.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def check(self) -> None:
        """Raise InterruptedTraining if a signal came."""
        if self._received is not None:
            raise InterruptedTraining(self._received)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self._received is not None:
            os._exit(128 + number)  # files on the disk are complete at any moment
        self._received = number
        # Not through a logger, which may be what was interrupted.
        text = f"{signal.Signals(number).name}: stopping after the present step; once more stops at once\n"
        with suppress(OSError):  # nobody may be there to read it
            os.write(2, text.encode())
