"""Trainings as processes of their own, which end with the sweep."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import FrameType
from typing import IO, Any

from embodichain.agents.rl.distributed.stop import InterruptedTraining, signals_to
from embodichain.utils.parent import with_this_parent


class TrialFailedError(RuntimeError):
    """A training of a trial did not come to its end."""


class Trainings:
    """The processes of a sweep's trainings. A signal to the sweep is handed on to them, and no more are begun."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._changing = threading.Lock()
        self._received: int | None = None

    def run(self, command: Sequence[str], output: IO[Any]) -> int:
        """Run a command in a session of its own, which ends with this process; return its exit code.

        Raises:
            TrialFailedError: a signal has ended the sweep.
        """
        with self._changing:
            if self._received is not None:
                raise TrialFailedError("the sweep has been interrupted")
            # In a session of its own: Ctrl-C then reaches it once, by us.
            process = subprocess.Popen(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | with_this_parent(),
                start_new_session=True,
            )
            self._running.add(process)
            if self._received is not None:  # it came meanwhile
                process.send_signal(self._received)
        code = process.wait()
        with self._changing:
            self._running.remove(process)
        return code

    def taking_signals(self) -> AbstractContextManager[None]:
        """While this is entered, raise InterruptedTraining for each of the signals that end a training."""
        return signals_to(self._take)

    def _take(self, number: int, frame: FrameType | None) -> None:
        # Without the lock, which another thread may hold for long: it starts a process.
        self._received = number
        for process in tuple(self._running):
            process.send_signal(number)
        raise InterruptedTraining(number)
