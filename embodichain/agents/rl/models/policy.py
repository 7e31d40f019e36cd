"""The interface of every policy.

Legend: ... any batch dimensions, N environments, O flattened observation size, A action size, S state size, L sequence
length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, ClassVar, Protocol

import torch
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.models.normalizer import RunningNormalizer
from embodichain.utils import ConfigError
from embodichain.utils.device import keeping_modes
from embodichain.utils.observations import flat_input, select_entries

EVALUATED = ("log_prob", "entropy", "value")
"""Entries that ``Policy.evaluate_actions`` returns; ``log_prob`` may be named ``sample_log_prob``."""


class Actor(Protocol):
    """The part of ``Policy`` that a collector uses."""

    @property
    def obs_keys(self) -> tuple[str, ...]:
        """Entries of the environment's structured observation that it reads."""

    @property
    def state_size(self) -> int:
        """Size of the recurrent state; 0: not recurrent."""

    @property
    def extra_fields(self) -> tuple[tuple[str, int], ...]:
        """Names and widths of further fields that it writes."""

    @property
    def chunk_length(self) -> int:
        """H, the number of actions of a choice."""

    @property
    def has_normalizer(self) -> bool:
        """Whether ``obs`` is normalised; it may then be float64."""

    @property
    def log_prob_size(self) -> int | None:
        """A', the number of log-probabilities per action of a chunk; None: A."""

    def get_action(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Write ``action``, ``sample_log_prob``, ``value`` and the attributes' fields into ``td``."""

    def get_value(self, td: TensorDict) -> TensorDict:
        """Write ``value`` into ``td``."""


def with_defaults(policy: Actor) -> Actor:
    """Return a policy after giving it the attributes of ``Actor`` that a class of its own lacks."""
    for name, value in vars(Actor).items():
        if isinstance(value, property) and not hasattr(policy, name):
            setattr(policy, name, getattr(Policy, name))
    return policy


def allocate_for(
    policy: Actor,
    num_envs: int,
    num_decisions: int,
    obs_dim: int,
    action_dim: int,
    device: torch.device | str,
    entries: TensorDict | None,
    **fields: Any,
) -> TensorDict:
    """Return a rollout [N, T+1] with the fields that a policy writes; arguments as of ``allocate_rollout``."""
    own = {name: getattr(policy, name) for name in ("extra_fields", "state_size", "chunk_length", "log_prob_size")}
    return allocate_rollout(num_envs, num_decisions, obs_dim, action_dim, device, entries=entries, **own, **fields)


def policy_input(
    policy: Actor,
    obs: TensorDict,
    state: torch.Tensor | None,
    device: torch.device,
    rows: torch.Tensor | slice = slice(None),
) -> TensorDict:
    """Return a policy's input from a structured observation.

    Args:
        obs: observation [N], nested; on any device.
        state: recurrent state [N, S], for recurrent policies.
        rows: mask [N] bool, on the observation's device, of the environments to take; default all.

    Returns:
        ``obs`` [N, O], NaN where the observation is infinite, and ``entries`` and ``state`` by the policy's attributes,
        on ``device``. ``obs`` is float32, or float64 if an entry is and the policy normalises: a time of 1.7e9 s is a
        constant in float32.
    """
    flat = flat_input(obs)[rows].to(device, None if policy.has_normalizer else torch.float32)
    fields: dict[str, torch.Tensor | TensorDict] = {"obs": flat}
    if policy.obs_keys:
        fields["entries"] = select_entries(obs, policy.obs_keys)[rows].to(device)
    if state is not None:
        fields["state"] = state[rows]
    return TensorDict(fields, batch_size=flat.shape[:1])


def valued(policy: Actor, td: TensorDict) -> TensorDict:
    """Return ``policy.get_value(td)``, also for policies that write into ``td`` and return None."""
    returned: TensorDict | None = policy.get_value(td)
    return td if returned is None else returned


def action_log_prob(evaluated: TensorDict) -> torch.Tensor:
    """Return the actions' log-probability from ``Policy.evaluate_actions``, under either name.

    A policy may write into a copy of its input with the rollout's ``sample_log_prob``: ``log_prob`` comes first.
    """
    own = evaluated.get("log_prob", None)
    log_prob: torch.Tensor = evaluated["sample_log_prob"] if own is None else own
    return log_prob


class Policy(nn.Module, ABC):
    """Chooses actions and values states; ``td["obs"]`` is float32 [..., O] (``has_normalizer``: or float64).

    The attributes' defaults fit a policy that reads the flat observation, is not recurrent and needs
    only ``action`` for ``evaluate_actions``.
    """

    evaluates: ClassVar[tuple[str, ...]] = EVALUATED
    """Entries for algorithms that ``evaluate_actions`` returns."""
    obs_keys: tuple[str, ...] = ()
    """Entries of the environment's structured observation read in addition to ``obs``: ``"sensor/cam/color"``. They
    are in ``td["entries"]``, a TensorDict by these names, with the environment's shapes and dtypes."""
    reads_flat_obs: bool = True
    """Whether actions depend on ``obs``; if not, an exported policy gets the entries of ``obs_keys`` alone."""
    state_size: int = 0
    """S, the size of the recurrent state; 0: not recurrent. Otherwise ``td`` has ``state`` [..., S], zeros where an
    episode begins, and ``forward`` writes ``next_state`` [..., S]."""
    extra_fields: tuple[tuple[str, int], ...] = ()
    """Names and widths of further float32 fields that ``forward`` writes and ``evaluate_actions`` needs back."""
    sequence_length: int | None = None
    """L: ``evaluate_actions`` gets [B, L] consecutive steps instead of [B] single ones. None: single steps; for
    recurrent policies the whole rollout. ``state`` is the rollout's before each step; an episode begins after each step
    that is ``done``."""
    chunk_length: int = 1
    """H, the number of actions of a choice. With more than 1, ``action`` is [..., H, A], ``sample_log_prob`` and
    ``entropy`` are [..., H, A'], not summed over anything (see ``AlgorithmCfg.logprob_level``), ``mean`` and
    ``log_std`` [..., H, A]; ``value`` is [...]. The environment may execute the first actions of a chunk only; they
    are ``executed`` [..., H] in the rollout, and only they count."""
    log_prob_size: int | None = None
    """A', the number of log-probabilities per action of a chunk; None: A, one for each component."""
    block: Mapping[str, Any] | None = None
    """The config block of ``build_policy``, as plain data, for checkpoints."""
    has_normalizer: bool = False
    """Whether ``update_normalizer`` has statistics; they are then initialised before the training, and float64
    observations stay float64 up to the normaliser."""

    @property
    def evaluation_fields(self) -> tuple[str, ...]:
        """Fields of the rollout that ``evaluate_actions`` reads in addition to ``action``."""
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
            td: tensors ``obs``, and ``entries`` and ``state`` by the attributes above.
            deterministic: take the most likely action instead of a sample.

        Returns:
            ``td`` with ``action`` [..., A], ``sample_log_prob`` [...], ``value`` [...] and the attributes' fields.
        """

    @abstractmethod
    def get_value(self, td: TensorDict) -> TensorDict:
        """Write ``value`` [...] into ``td``, the input of ``forward``, and return it."""

    @abstractmethod
    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        """Return a new TensorDict with ``sample_log_prob``, ``entropy`` and ``value``, each [...], with gradients.

        The first may be named ``log_prob``. GRPO does not read ``value``. A Gaussian policy adds ``mean`` and
        ``log_std`` [..., A], from which algorithms compute exact KL divergences.

        Args:
            td: tensors with the ``action`` to evaluate and the ``evaluation_fields``; it is not changed.
        """

    @property
    def imitation_length(self) -> int:
        """Number of consecutive actions that ``imitation_loss`` gets."""
        return self.chunk_length

    def fit_inputs(self, frames: TensorDict) -> None:
        """Fit the input statistics to demonstrations: frames [M] with ``obs``, ``entries`` and ``action``."""
        self.update_normalizer(frames["obs"])

    def imitation_loss(self, td: TensorDict) -> torch.Tensor:
        """Return the loss of demonstrated actions, with gradients: their negative log-likelihood, nats a number.

        Args:
            td: the input of ``evaluate_actions``, with ``action`` [..., A] or, if ``imitation_length`` is H > 1,
                [..., H, A].

        Returns:
            [...], or [..., H, A'].
        """
        numbers = 1 if self.chunk_length > 1 else td["action"].shape[-1]
        return -action_log_prob(self.evaluate_actions(td)) / numbers

    @torch.no_grad()
    def get_action(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Call ``forward`` without gradients."""
        return self.forward(td, deterministic)

    def update_normalizer(self, obs: torch.Tensor) -> None:
        """Merge observations [..., O] into the policy's input statistics, its ``normalizer``, if it has any.

        The trainer calls this between two updates and never within one, so that the log-probabilities of a rollout and
        of its update are computed from the same inputs.
        """
        if isinstance(normalizer := getattr(self, "normalizer", None), RunningNormalizer):
            normalizer.update(obs)

    def reference(self) -> Policy:
        """Return a frozen copy of the policy, for KL divergences from it.

        Every ``RunningNormalizer`` is shared with it and keeps updating: its statistics are not parameters, and with a
        copy of them the two policies would differ in their inputs. A policy with other statistics must share them here.
        """
        shared: dict[int, Any] = {id(part): part for part in self.modules() if isinstance(part, RunningNormalizer)}
        with keeping_modes(self):
            return deepcopy(self, shared).eval().requires_grad_(False)

    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Return scalars of the policy's state, logged with the losses."""
        return {}


def load_policy_state(policy: Policy, saved: Mapping[str, Any], place: str) -> None:
    """Load a ``state_dict`` of the same policy config; ``place`` is its source, for the message if it does not fit."""
    try:
        policy.load_state_dict(dict(saved))
    except RuntimeError as error:
        lines = " ".join(str(error).split())
        raise ConfigError(
            f"{place}: does not fit the policy that its config makes here; has the task's observation or action "
            f"changed since? {lines}"
        ) from error
