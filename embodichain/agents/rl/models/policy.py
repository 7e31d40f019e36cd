"""The interface of every policy.

Legend: ... any batch dimensions, O flattened observation size, A action size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from tensordict import TensorDict
from torch import nn

__all__ = ["Policy"]


class Policy(nn.Module, ABC):
    """Chooses actions and values states; ``td["obs"]`` is float32 [..., O] throughout."""

    @abstractmethod
    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose actions.

        Args:
            td: has ``obs``.
            deterministic: take the most likely action instead of a sample.

        Returns:
            ``td``, into which ``action`` [..., A], ``sample_log_prob`` [...] and ``value`` [...] were written.
        """

    @abstractmethod
    def get_value(self, td: TensorDict) -> TensorDict:
        """Write ``value`` [...] of the states ``obs`` into ``td``, and return it."""

    @abstractmethod
    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        """Return a new TensorDict with ``sample_log_prob``, ``entropy`` and ``value``, each [...], with gradients.

        Args:
            td: has ``obs`` and the ``action`` to evaluate; it stays as it is.
        """

    @torch.no_grad()
    def get_action(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Do what ``forward`` does, without gradients."""
        return self.forward(td, deterministic)

    def update_normalizer(self, obs: torch.Tensor) -> None:
        """Take observations [..., O] into the policy's input statistics, if it keeps any.

        The trainer calls this between two updates and never within one, so that the log-probabilities of a rollout and
        those of its update are computed from the same inputs.
        """

    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Return scalars on the policy's state, to be logged beside the losses."""
        return {}
