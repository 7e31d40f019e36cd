"""A queue of complete rollouts between the collector and the learner.

Legend: N envs, T rollout steps.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from tensordict import TensorDict

from embodichain.agents.rl.buffer.rollout_buffer import check_rollout

__all__ = ["BufferClosedError", "VLABuffer"]


class BufferClosedError(RuntimeError):
    """The buffer was closed before or while it was waited for."""


class VLABuffer:
    """Complete rollouts [N, T+1], first in, first out, each handed out exactly once, by reference.

    Any number of threads may add and get. A thread that waits sleeps on a condition and is woken by what it waits for,
    or by :meth:`close`: no thread waits for ever on one that has ended.

    Args:
        buffer_size: how many rollouts may wait, at least 1.

    Raises:
        ValueError: ``buffer_size`` is less than 1.
    """

    def __init__(self, buffer_size: int) -> None:
        if buffer_size < 1:
            raise ValueError(f"buffer_size: must be at least 1, got {buffer_size}")
        self.buffer_size = buffer_size
        self._rollouts: deque[TensorDict] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._error: BaseException | None = None
        self._produced = self._consumed = self._dropped = 0

    def add_rollout(self, rollout: TensorDict, timeout: float | None = None) -> None:
        """Put a rollout at the end; wait for room where the buffer is full.

        Args:
            rollout: batch size [N, T+1]. It belongs to the buffer from now on.
            timeout: seconds to wait at most; None: until there is room.

        Raises:
            ValueError: it has not the two batch dimensions of a rollout.
            TimeoutError: there was no room in time; the rollout was not taken.
            BufferClosedError: the buffer is closed; the rollout was not taken.
        """
        check_rollout(rollout)
        with self._changed:
            self._wait(lambda: len(self._rollouts) < self.buffer_size, timeout, "room for a rollout")
            if self._is_closed:
                raise BufferClosedError("the buffer of rollouts is closed")
            self._rollouts.append(rollout)
            self._produced += 1
            self._changed.notify_all()

    def get(self, timeout: float | None = None) -> TensorDict:
        """Take out the oldest rollout; wait for one where there is none.

        Args:
            timeout: seconds to wait at most; None: until there is one.

        Raises:
            TimeoutError: there was none in time.
            BufferClosedError: the buffer is closed.
            BaseException: what the buffer was closed with.
        """
        with self._changed:
            self._wait(lambda: len(self._rollouts) > 0, timeout, "rollout")
            if self._is_closed:
                raise self._error or BufferClosedError("the buffer of rollouts is closed")
            self._consumed += 1
            self._changed.notify_all()
            return self._rollouts.popleft()

    def is_full(self) -> bool:
        """Return whether the next :meth:`add_rollout` would wait."""
        with self._changed:
            return len(self._rollouts) >= self.buffer_size

    def clear(self) -> int:
        """Drop all rollouts; return how many there were."""
        with self._changed:
            count = len(self._rollouts)
            self._rollouts.clear()
            self._dropped += count
            self._changed.notify_all()
            return count

    def close(self, error: BaseException | None = None) -> None:
        """End all waiting, now and from now on, until :meth:`reopen`; what is in the buffer stays.

        Args:
            error: raised by :meth:`get` in place of ``BufferClosedError``: why there will be no more rollouts.
        """
        with self._changed:
            self._is_closed = True
            self._error = error or self._error
            self._changed.notify_all()

    def reopen(self) -> None:
        """Undo :meth:`close`."""
        with self._changed:
            self._is_closed, self._error = False, None

    def get_stats(self) -> dict[str, int]:
        """Return counts of rollouts: ``produced`` = ``consumed`` + ``dropped`` + ``in_flight``; and ``capacity``."""
        with self._changed:
            return {
                "produced": self._produced,
                "consumed": self._consumed,
                "dropped": self._dropped,
                "in_flight": len(self._rollouts),
                "capacity": self.buffer_size,
            }

    def __len__(self) -> int:
        with self._changed:
            return len(self._rollouts)

    def _wait(self, is_ready: Callable[[], bool], timeout: float | None, what: str) -> None:
        if not self._changed.wait_for(lambda: self._is_closed or is_ready(), timeout):
            raise TimeoutError(f"no {what} within {timeout} s")
