"""The interface of every collector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensordict import TensorDict

__all__ = ["BaseCollector", "StepCallback"]

StepCallback = Callable[[TensorDict, dict[str, Any]], None]
"""Called after every step with the policy's fields of that step (``obs``, ``action``, ``sample_log_prob``, ``value``,
and what else the policy reads and writes; batch size [N]; overwritten by the next rollout) and the environment's
``info``; in the thread that collects."""


class BaseCollector(ABC):
    """Fills rollouts with a policy's experience."""

    num_env_sets: int = 1
    """Sets of N environments that rollouts come from; each rollout comes from one of them."""
    reset_every_rollout: bool = False
    """Begin every rollout with new episodes in all environments."""
    keeps_final_obs: bool = False
    """Rollouts have ``final``, the final observations of truncated steps; to be set before the first one."""

    @abstractmethod
    def collect(self, num_steps: int, rollout: TensorDict | None = None) -> TensorDict:
        """Return a rollout of ``num_steps`` steps in every environment; with chunks of actions, of so many decisions.

        Args:
            num_steps: T.
            rollout: where to write, as from ``RolloutBuffer.start_rollout``; None: storage of the collector's own,
                which the next call may write over.

        Returns:
            The complete rollout [N, T+1]; fields in ``buffer/layout.py``.

        Raises:
            ValueError: ``rollout`` is not of batch size [N, T+1].
        """

    @abstractmethod
    def reset(self) -> None:
        """Begin new episodes in all environments, and forget the policy's recurrent state."""

    def state_dict(self) -> dict[str, Any]:
        """Return what, beside the environments, the next rollout depends on, as plain data."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027 (nothing where there is no state)
        """Take what ``state_dict`` returned."""

    def env_state_dict(self) -> dict[str, Any] | None:
        """Return the state of the environments where the next rollout starts, None where they keep none."""
        return None

    def load_env_state_dict(self, state: dict[str, Any]) -> bool:
        """Take what ``env_state_dict`` returned; return whether the environments could."""
        return False

    def start(self) -> None:  # noqa: B027 (nothing runs in the background)
        """Begin to collect in the background, if that is how the collector works."""

    def stop(self) -> None:  # noqa: B027
        """End what ``start`` began."""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let no environment step while this is entered; nothing is lost."""
        yield

    def scalars(self) -> dict[str, float]:
        """Return metrics to be logged about the rollout that ``collect`` returned last."""
        return {}
