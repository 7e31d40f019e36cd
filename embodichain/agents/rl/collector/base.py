"""The interface of every collector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensordict import TensorDict

StepCallback = Callable[[TensorDict, dict[str, Any]], None]
"""Called after every step with the policy's fields of that step (``obs``, ``action``, ``sample_log_prob``, ``value``,
and the policy's other fields; batch size [N]; overwritten by the next rollout) and the environment's
``info``; in the thread that collects."""


class BaseCollector(ABC):
    """Fills rollouts with a policy's experience."""

    num_env_sets: int = 1
    """Sets of N environments that rollouts come from; each rollout comes from one of them."""
    reset_every_rollout: bool = False
    """Begin every rollout with new episodes in all environments."""
    keeps_final_obs: bool = False
    """Rollouts have ``final``, the final observations of truncated steps; set it before the first rollout."""

    @abstractmethod
    def collect(self, num_steps: int, rollout: TensorDict | None = None) -> TensorDict:
        """Return a rollout of ``num_steps`` steps (with chunks of actions: decisions) in every environment.

        Args:
            num_steps: T.
            rollout: written into, as from ``RolloutBuffer.start_rollout``; None: the collector's own storage, which
                the next call may overwrite.

        Returns:
            The complete rollout [N, T+1]; fields in ``buffer/layout.py``.

        Raises:
            ValueError: ``rollout`` is not of batch size [N, T+1].
        """

    @abstractmethod
    def reset(self) -> None:
        """Begin new episodes in all environments, with the policy's recurrent state 0."""

    @abstractmethod
    def allocate(self, num_steps: int) -> TensorDict:
        """Return new storage for a rollout of ``num_steps`` steps, [N, T+1]."""

    def state_dict(self) -> dict[str, Any]:
        """Return the collector's state without the environments', as plain data."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027 (nothing where there is no state)
        """Load the result of ``state_dict``."""

    def env_state_dict(self) -> dict[str, Any] | None:
        """Return the environments' state at the start of the next rollout; None if they do not save theirs."""
        return None

    def load_env_state_dict(self, state: dict[str, Any]) -> bool:
        """Load the result of ``env_state_dict``; return whether the episodes continue."""
        return False

    def start(self) -> None:  # noqa: B027 (nothing runs in the background)
        """Begin to collect in the background, if the collector does."""

    def stop(self) -> None:  # noqa: B027
        """Stop the work that ``start`` began."""

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside this context no environment steps; nothing is lost."""
        yield

    def scalars(self) -> dict[str, float]:
        """Return metrics to log of the last rollout."""
        return {}
