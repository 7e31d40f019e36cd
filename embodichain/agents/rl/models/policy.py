"""The interface of every policy.

Legend: ... any batch dimensions, N environments, O flattened observation size, A action size, S state size, L sequence
length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Protocol

import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models.normalizer import RunningNormalizer
from embodichain.utils.modes import keeping_modes
from embodichain.utils.observations import flat_input, select_entries

__all__ = ["EVALUATED", "Actor", "Policy", "action_log_prob", "policy_input", "valued"]

EVALUATED = ("log_prob", "entropy", "value")
"""What ``Policy.evaluate_actions`` returns; ``log_prob`` may be named ``sample_log_prob``."""


class Actor(Protocol):
    """What a collector uses of a policy, or of what stands for one; see ``Policy``."""

    @property
    def obs_keys(self) -> tuple[str, ...]:
        """Entries of the environment's structured observation that it reads."""

    @property
    def state_size(self) -> int:
        """Size of the recurrent state, 0 without memory."""

    @property
    def extra_fields(self) -> tuple[tuple[str, int], ...]:
        """Names and widths of further fields that it writes."""

    @property
    def chunk_length(self) -> int:
        """H, how many actions it chooses at a time."""

    @property
    def log_prob_size(self) -> int | None:
        """A', how many log-probabilities it tells of an action of a chunk; None: A."""

    def get_action(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Write ``action``, ``sample_log_prob``, ``value`` and what the attributes say into ``td``."""

    def get_value(self, td: TensorDict) -> TensorDict:
        """Write ``value`` into ``td``."""


def policy_input(
    policy: Actor,
    obs: TensorDict,
    state: torch.Tensor | None,
    device: torch.device,
    rows: torch.Tensor | slice = slice(None),
) -> TensorDict:
    """Return what a policy is given of a structured observation.

    Args:
        policy: the policy.
        obs: observation [N], nested; on any device.
        state: recurrent state [N, S], for policies with memory.
        device: where the policy is.
        rows: mask [N] bool, on the observation's device, of the environments to take; default all.

    Returns:
        ``obs`` [N, O], not-a-number where the observation is infinite, and ``entries`` and ``state`` as the policy's
        attributes ask for, on ``device``.
    """
    flat = flat_input(obs)[rows].to(device)
    fields: dict[str, torch.Tensor | TensorDict] = {"obs": flat}
    if policy.obs_keys:
        fields["entries"] = select_entries(obs, policy.obs_keys)[rows].to(device)
    if state is not None:
        fields["state"] = state[rows]
    return TensorDict(fields, batch_size=flat.shape[:1])


def valued(policy: Actor, td: TensorDict) -> TensorDict:
    """Return what ``get_value`` makes of ``td``, with ``value``; some policies only write into what they are given."""
    returned: TensorDict | None = policy.get_value(td)
    return td if returned is None else returned


def action_log_prob(evaluated: TensorDict) -> torch.Tensor:
    """Return the actions' log-probability of what ``Policy.evaluate_actions`` returned, under either of its names.

    A policy may write into a copy of what it was given, whose ``sample_log_prob`` is the rollout's: ``log_prob``, where
    it is there, is the policy's own.
    """
    own = evaluated.get("log_prob", None)
    log_prob: torch.Tensor = evaluated["sample_log_prob"] if own is None else own
    return log_prob


class Policy(nn.Module, ABC):
    """Chooses actions and values states; ``td["obs"]`` is float32 [..., O] throughout.

    A policy that reads the flat observation, has no memory and needs nothing back but the action leaves the attributes
    below as they are.
    """

    obs_keys: tuple[str, ...] = ()
    """Entries of the environment's structured observation that are read beside ``obs``: ``"sensor/cam/color"``. They
    come as ``td["entries"]``, a TensorDict by these names, with shapes and dtypes as the environment gives them."""
    reads_flat_obs: bool = True
    """Whether actions depend on ``obs``. Where not, an exported policy is given the entries of ``obs_keys`` alone."""
    state_size: int = 0
    """S, the size of the recurrent state, or 0 without memory. With memory, ``td`` has ``state`` [..., S], zeros where
    an episode begins, and ``forward`` writes ``next_state`` [..., S]."""
    extra_fields: tuple[tuple[str, int], ...] = ()
    """Names and widths of further float32 fields that ``forward`` writes and ``evaluate_actions`` needs back."""
    sequence_length: int | None = None
    """L: ``evaluate_actions`` is given [B, L] consecutive steps instead of [B] single ones. None: single steps, and for
    policies with memory the whole rollout. ``state`` is that before each step, as the rollout's policy had it; an
    episode begins after each step that is ``done``."""
    chunk_length: int = 1
    """H, how many actions are chosen at a time. With more than 1, ``action`` is [..., H, A], ``sample_log_prob`` and
    ``entropy`` are [..., H, A'], not summed over anything (see ``AlgorithmCfg.logprob_level``), ``mean`` and
    ``log_std`` [..., H, A]; ``value`` is [...]. The environment may execute the first actions of a chunk only: what was
    not executed does not count, as ``executed`` [..., H] of the rollout says."""
    log_prob_size: int | None = None
    """A', how many log-probabilities are told of each action of a chunk; None: A, one for each component."""
    block: Mapping[str, Any] | None = None
    """The config's block that ``build_policy`` made it from, as plain data: a checkpoint keeps it."""
    has_normalizer: bool = False
    """Whether ``update_normalizer`` keeps statistics; they are then given something to begin with before training."""

    @property
    def evaluation_fields(self) -> tuple[str, ...]:
        """Fields of the rollout that ``evaluate_actions`` reads beside ``action``."""
        return (
            "obs",
            *(("entries",) if self.obs_keys else ()),
            *(("state", "done") if self.state_size else ()),
            *(name for name, _ in self.extra_fields),
        )

    @abstractmethod
    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose actions.

        Args:
            td: has ``obs``, and ``entries`` and ``state`` as the attributes above say.
            deterministic: take the most likely action instead of a sample.

        Returns:
            ``td``, into which ``action`` [..., A], ``sample_log_prob`` [...], ``value`` [...] and what the attributes
            above say were written.
        """

    @abstractmethod
    def get_value(self, td: TensorDict) -> TensorDict:
        """Write ``value`` [...] into ``td``, which has what ``forward`` is given, and return it."""

    @abstractmethod
    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        """Return a new TensorDict with ``sample_log_prob``, ``entropy`` and ``value``, each [...], with gradients.

        The first may be named ``log_prob``: algorithms read it by ``action_log_prob``. GRPO does not read ``value``.

        A Gaussian policy adds ``mean`` and ``log_std`` [..., A], from which algorithms compute exact KL divergences.

        Args:
            td: has the ``action`` to evaluate and the ``evaluation_fields``; it stays as it is.
        """

    @torch.no_grad()
    def get_action(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Do what ``forward`` does, without gradients."""
        return self.forward(td, deterministic)

    @property
    def updates_by_rows(self) -> bool:
        """Whether ``evaluate_actions`` divides its rows among the threads of ``rows_in_threads``."""
        return False

    def update_normalizer(self, obs: torch.Tensor) -> None:
        """Take observations [..., O] into the policy's input statistics, if it keeps any.

        The trainer calls this between two updates and never within one, so that the log-probabilities of a rollout and
        those of its update are computed from the same inputs.
        """

    def reference(self) -> Policy:
        """Return a policy that stays as this one is now, to be compared with: here a frozen copy.

        Every ``RunningNormalizer`` is shared with it and goes on learning: statistics are no parameters. A copy of them
        would soon see other inputs than this policy does, and differ from it by that alone. A policy that keeps its
        statistics in something else shares that here.
        """
        shared: dict[int, Any] = {id(part): part for part in self.modules() if isinstance(part, RunningNormalizer)}
        with keeping_modes(self):
            return deepcopy(self, shared).eval().requires_grad_(False)

    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Return scalars on the policy's state, to be logged beside the losses."""
        return {}
