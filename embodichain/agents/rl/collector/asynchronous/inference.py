"""How a policy gets from the learner to the collector: as versioned snapshots, never as a shared module.

Legend: N envs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from types import MappingProxyType

import torch
from tensordict import TensorDict

from embodichain.agents.rl.collector.asynchronous.own_draws import OwnDraws
from embodichain.agents.rl.models import Policy, valued

__all__ = ["InferencePolicy", "PolicyPublisher", "PolicySnapshot"]


@dataclass(frozen=True)
class PolicySnapshot:
    """A policy's parameters and buffers as they were once.

    Attributes:
        version: counts up with each snapshot of a run.
        tensors: by name, its own and never written to: the parameters that are trained, and all buffers.
    """

    version: int
    tensors: Mapping[str, torch.Tensor]


class PolicyPublisher:
    """The learner's side: takes snapshots of the policy that it improves.

    Parameters that are not trained (a frozen backbone) are not copied again: the collector has had them from the start.

    Args:
        version: of the first snapshot, which is taken here.
    """

    def __init__(self, policy: Policy, version: int = 0) -> None:
        self._policy = policy
        self._latest = self._take(version)

    @property
    def latest(self) -> PolicySnapshot:
        """The last snapshot."""
        return self._latest

    def publish(self, version: int | None = None) -> int:
        """Take a snapshot of the policy as it is now; return its version.

        To be called by the thread that changes the policy, between two changes.

        Args:
            version: its version; None: one more than the last.
        """
        # One assignment: a reader in another thread sees the old one or the new one, whole.
        self._latest = self._take(self._latest.version + 1 if version is None else version)
        return self._latest.version

    @torch.no_grad()
    def _take(self, version: int) -> PolicySnapshot:
        named: dict[str, torch.Tensor] = {n: p for n, p in self._policy.named_parameters() if p.requires_grad}
        named |= dict(self._policy.named_buffers())
        return PolicySnapshot(version, MappingProxyType({name: x.detach().clone() for name, x in named.items()}))


class InferencePolicy:
    """The collector's side: a copy of the policy, which takes the newest snapshot before a forward pass.

    Several threads may use it; one of them infers at a time. What ``get_action`` and ``get_value`` return has, beside
    the policy's fields, ``policy_version`` [N] int64: the snapshot that chose the actions, or gave the values.

    Args:
        policy: the learner's policy; copied whole, so that no storage is shared.
        gate: called before each choice of actions, outside the lock: it may wait, and may raise.
    """

    def __init__(self, policy: Policy, publisher: PolicyPublisher, gate: Callable[[], None] = lambda: None) -> None:
        self.obs_keys, self.state_size, self.extra_fields = policy.obs_keys, policy.state_size, policy.extra_fields
        self.chunk_length, self.log_prob_size = policy.chunk_length, policy.log_prob_size
        self._module = deepcopy(policy)
        self._tensors = {**dict(self._module.named_parameters()), **dict(self._module.named_buffers())}
        self._publisher = publisher
        self._gate = gate
        self._lock = threading.Lock()
        self._draws: AbstractContextManager[object] = nullcontext()
        self._version = -1
        self._refresh()

    @property
    def module(self) -> Policy:
        """The copy itself."""
        return self._module

    def draw_from(self, seed: int | None) -> None:
        """Draw from generators of this object's own from now on, of this seed; None: from torch's global ones."""
        self._draws = nullcontext() if seed is None else OwnDraws(seed)

    @torch.no_grad()
    def get_action(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose actions; see ``Policy.forward``."""
        self._gate()
        with self._lock:
            self._refresh()
            with self._draws:
                step = self._module.get_action(td, deterministic)
            step["policy_version"] = torch.full(td.batch_size, self._version, device=step["action"].device)
        return step

    @torch.no_grad()
    def get_value(self, td: TensorDict) -> TensorDict:
        """Write ``value`` and ``policy_version``, by the snapshot in use; see ``Policy.get_value``."""
        with self._lock:
            td = valued(self._module, td)
            td["policy_version"] = torch.full(td.batch_size, self._version, device=td["value"].device)
        return td

    def _refresh(self) -> None:
        snapshot = self._publisher.latest
        if snapshot.version != self._version:
            with torch.no_grad():
                for name, value in snapshot.tensors.items():
                    self._tensors[name].copy_(value)
            self._version = snapshot.version
