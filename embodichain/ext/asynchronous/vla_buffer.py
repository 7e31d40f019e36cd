"""A queue of complete rollouts between the collector and the learner.

Legend: N envs, T rollout steps.
"""

import threading
from collections import deque

from tensordict import TensorDict

from embodichain.agents.rl.buffer.rollout_buffer import check_rollout


class BufferClosedError(RuntimeError):
    """Raised by ``get`` and ``add_rollout`` of a closed buffer."""


class VLABuffer:
    """Complete rollouts [N, T+1], first in, first out, each handed out exactly once, by reference.

    Any number of threads may add and get. ``close`` wakes all waiting threads with an error.

    Args:
        buffer_size: capacity in rollouts, at least 1.
    """

    def __init__(self, buffer_size: int) -> None:
        self.buffer_size = buffer_size
        self._rollouts: deque[TensorDict] = deque()
        self._changed = threading.Condition()
        self._is_closed = False
        self._error: BaseException | None = None
        self._produced = self._consumed = self._dropped = 0

    def add_rollout(self, rollout: TensorDict) -> None:
        """Append a rollout [N, T+1], the buffer's from now on; wait for room if the buffer is full."""
        check_rollout(rollout)
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._rollouts) < self.buffer_size)
            if self._is_closed:
                raise BufferClosedError("the buffer of rollouts is closed")
            self._rollouts.append(rollout)
            self._produced += 1
            self._changed.notify_all()

    def get(self) -> TensorDict:
        """Remove and return the oldest rollout; wait for one. A closed buffer raises the error it was closed with."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._rollouts) > 0)
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
        """Wake all waiting threads with an error, and refuse calls until :meth:`reopen`; rollouts stay."""
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
