"""The interface of every collector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from tensordict import TensorDict

__all__ = ["BaseCollector", "StepCallback"]

StepCallback = Callable[[TensorDict, dict[str, Any]], None]
"""Called after every step with the policy's fields of that step (``obs``, ``action``, ``sample_log_prob``, ``value``,
and what else the policy reads and writes; batch size [N]; overwritten by the next rollout) and the environment's
``info``."""


class BaseCollector(ABC):
    """Fills rollouts with a policy's experience."""

    @abstractmethod
    def collect(self, num_steps: int, rollout: TensorDict | None = None) -> TensorDict:
        """Run the policy for ``num_steps`` steps in every environment.

        Args:
            num_steps: T.
            rollout: where to write, as from ``RolloutBuffer.start_rollout``; None: storage of the collector's own,
                which the next call writes over.

        Returns:
            The complete rollout [N, T+1]; fields in ``buffer/layout.py``.

        Raises:
            ValueError: ``rollout`` is not of batch size [N, T+1].
        """

    @abstractmethod
    def reset(self) -> None:
        """Begin new episodes in all environments, and forget the policy's recurrent state."""
