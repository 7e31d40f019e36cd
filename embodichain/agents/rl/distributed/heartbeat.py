"""Heartbeats between the processes of a training, so that no process waits for ever for one that is lost."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

from embodichain.utils.errors import CommandFailedError

LIMIT = 20.0  # s, unless the config says otherwise
PATIENCE = 15  # times the limit, until the first iteration is finished: it compiles, loads and allocates
_WORKING, _WAITING, _BUSY = "working", "waiting", "busy"


class LostProcessError(CommandFailedError):
    """Another process of the training has ended, or cannot be reached."""


class HungProcessError(RuntimeError):
    """The main thread of this process makes no steps."""


class Store(Protocol):
    """Key-value store that all processes read and write: that of the rendezvous."""

    def set(self, key: str, value: str) -> None:
        """Write a text."""

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Read texts that exist."""


class FolderStore:
    """A store for processes of one machine: a file for each key in ``folder``, replaced as a whole."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder

    def set(self, key: str, value: str) -> None:
        """Write a text; a RuntimeError if the folder is gone or full."""
        path = self._path(key)
        new = path.with_suffix(".new")  # each key has one writer
        try:
            new.write_text(value, encoding="utf-8")
            new.replace(path)
        except OSError as error:
            raise RuntimeError(f"{path}: cannot be written: {error.strerror}") from error

    def multi_get(self, keys: list[str]) -> list[bytes]:
        """Read texts; a RuntimeError if one is missing."""
        try:
            return [self._path(key).read_bytes() for key in keys]
        except OSError as error:
            raise RuntimeError(f"{error.filename}: cannot be read: {error.strerror}") from error

    def _path(self, key: str) -> Path:
        return self._folder / key.replace("/", "_")


class Heartbeat:
    """A thread that publishes this process's state to the others, and ends the process if its main thread hangs.

    The main thread is *working*, and calls :meth:`step` regularly; *waiting* for the other processes; or *busy* with
    work that may take any time, such as writing a checkpoint. If it works without a step for longer than the limit, it
    hangs. A process that sends no heartbeat for as long (its machine has stopped, or the network) is lost:
    :meth:`check_others` raises in the processes that wait for it.

    Args:
        on_hang: called in the thread; must end the process.

    Attributes:
        limit: s; before :meth:`settle` it is ``PATIENCE`` times as long.
    """

    def __init__(self, store: Store, rank: int, world_size: int, on_hang: Callable[[HungProcessError], None]) -> None:
        self._store = store
        self._rank = rank
        self._keys = [f"embodichain/alive/{r}" for r in range(world_size)]
        self.limit = LIMIT
        self._factor = PATIENCE
        self._on_hang = on_hang
        self._state = _WORKING
        self._waits = 0  # number of waits so far: equal on all processes that are in step
        self._waits_for = ""
        self._beats = 0
        self._last_step = time.monotonic()
        self._last_round = self._last_step
        self._seen: dict[int, tuple[str, float]] = {}  # by rank: its last text, and when that was first read
        self._last_change = self._last_step  # of any process's text, apart from the number of its heartbeats
        self._main = threading.current_thread().ident
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def publish(self) -> None:
        """Publish this process's state; all processes must do so before any starts."""
        self._beats += 1
        self._store.set(self._keys[self._rank], f"{self._beats} {self._state} {self._waits} {self._waits_for}")

    def start(self) -> None:
        """Start the thread."""
        self._last_step = self._last_round = time.monotonic()
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)  # it may hang in a store that is gone

    def settle(self) -> None:
        """Apply the limit itself from now on: the slow first iteration is finished."""
        self._factor = 1

    def step(self) -> None:
        """Note progress of the main thread."""
        self._last_step = time.monotonic()

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Mark that the main thread waits for the other processes."""
        self._waits += 1
        self._waits_for = what
        with self._in_state(_WAITING):
            yield

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Mark that the main thread does work that may take any time."""
        with self._in_state(_BUSY):
            yield

    def check_others(self, since: float) -> None:
        """Check the other processes; for a process that has been waiting since ``since`` (monotonic time, s).

        Raises:
            LostProcessError: a process or the store does not answer, or all wait for each other.
        """
        now, limit = time.monotonic(), self.limit * self._factor
        if now - self._last_round > limit:
            raise LostProcessError(f"the store of the rendezvous has not answered for {now - self._last_round:.0f} s")
        seen = {rank: entry for rank, entry in self._seen.items() if rank != self._rank}
        silent = [rank for rank, (_, at) in seen.items() if now - at > limit]
        if silent:
            raise LostProcessError(f"no sign of life from {_ranks(silent)} for {limit:.0f} s")
        if now - since > limit and seen:
            texts = {rank: text.split(" ", 1)[1] for rank, (text, _) in seen.items()}
            if all(text.startswith(_WAITING) for text in texts.values()) and now - self._last_change > limit:
                places = {self._rank: f"{_WAITING} {self._waits} {self._waits_for}"} | texts
                lines = "; ".join(f"rank {rank}: {text}" for rank, text in sorted(places.items()))
                raise LostProcessError(f"all processes wait for each other, they are out of step ({lines})")

    @contextmanager
    def _in_state(self, state: str) -> Iterator[None]:
        before, self._state = self._state, state
        try:
            yield
        finally:
            self._last_step = time.monotonic()
            self._state = before

    def _run(self) -> None:
        while not self._closed.wait(min(2.0, self.limit / 5)):
            stuck = time.monotonic() - self._last_step
            if self._state == _WORKING and stuck > self.limit * self._factor:
                self._on_hang(HungProcessError(self._describe_hang(stuck)))
            try:
                self._exchange()
            except RuntimeError:
                continue  # the main thread finds out by the time of the last round

    def _exchange(self) -> None:
        self.publish()
        texts = [value.decode() for value in self._store.multi_get(self._keys)]
        now = time.monotonic()
        for rank, text in enumerate(texts):
            before = self._seen.get(rank, ("", now))[0]
            if text != before:
                if text.partition(" ")[2] != before.partition(" ")[2]:
                    self._last_change = now
                self._seen[rank] = (text, now)
        self._last_round = now

    def _describe_hang(self, seconds: float) -> str:
        frame = sys._current_frames().get(self._main or 0)
        stack = "".join(traceback.format_stack(frame)) if frame else ""
        return f"rank {self._rank} has made no step for {seconds:.0f} s (trainer.hang_seconds); it is here:\n{stack}"


class NoHeartbeat:
    """Sends and checks nothing: for one process, or for the program's own process group, which has time limits."""

    limit = LIMIT

    def settle(self) -> None:
        """Do nothing."""

    def step(self) -> None:
        """Do nothing."""

    def waiting(self, what: str) -> AbstractContextManager[None]:
        """Mark nothing."""
        return nullcontext()

    def busy(self) -> AbstractContextManager[None]:
        """Mark nothing."""
        return nullcontext()

    def check_others(self, since: float) -> None:
        """Check nothing."""


def _ranks(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
