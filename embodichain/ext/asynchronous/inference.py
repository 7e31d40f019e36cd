"""Transfer of a policy from the learner to the collector: as versioned snapshots, never as a shared module.

Legend: N envs.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.overrides import TorchFunctionMode

from embodichain.agents.rl.models import Policy, valued


@dataclass(frozen=True)
class PolicySnapshot:
    """A policy's parameters and buffers at one time.

    Attributes:
        version: counts up with each snapshot of a run.
        tensors: the trainable parameters and all buffers by name: private copies, never written to.
    """

    version: int
    tensors: Mapping[str, Tensor]


class PolicyPublisher:
    """The learner's side: takes snapshots of the policy, the first one (version 0) when it is constructed.

    Frozen parameters (such as a backbone) are not copied again: the collector has them from the start.

    Attributes:
        latest: the last snapshot.
    """

    latest: PolicySnapshot

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.publish(0)

    def publish(self, version: int | None = None) -> None:
        """Take a snapshot of the policy as it is now.

        To be called by the thread that changes the policy, between two changes.

        Args:
            version: snapshot's version; None: one more than the last.
        """
        named: dict[str, Tensor] = {n: p for n, p in self._policy.named_parameters() if p.requires_grad}
        named |= dict(self._policy.named_buffers())
        tensors = MappingProxyType({name: x.detach().clone() for name, x in named.items()})
        # One assignment: a reader in another thread sees the old one or the new one, whole.
        self.latest = PolicySnapshot(self.latest.version + 1 if version is None else version, tensors)


class InferencePolicy:
    """The collector's side: a copy of the policy, which loads the newest snapshot before a forward pass.

    Several threads may use it; one of them infers at a time. In addition to the policy's fields, ``get_action`` and
    ``get_value`` write ``policy_version`` [N] int64: the snapshot of the actions, or of the values.

    Args:
        policy: the learner's policy; a deep copy is made, so that no storage is shared.
        gate: function called before each choice of actions, outside the lock: it may wait, and may raise.

    Attributes:
        module: the copy.
    """

    def __init__(self, policy: Policy, publisher: PolicyPublisher, gate: Callable[[], None] = lambda: None) -> None:
        self.obs_keys, self.state_size, self.extra_fields = policy.obs_keys, policy.state_size, policy.extra_fields
        self.chunk_length, self.log_prob_size = policy.chunk_length, policy.log_prob_size
        self.has_normalizer = policy.has_normalizer
        self.module = deepcopy(policy)
        self._tensors = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        self._publisher = publisher
        self._gate = gate
        self._lock = threading.Lock()
        self._draws: AbstractContextManager[object] = nullcontext()
        self._version = -1
        self._refresh()

    def draw_from(self, seed: int | None) -> None:
        """Draw from separate generators with this seed from now on; None: from torch's global ones."""
        self._draws = nullcontext() if seed is None else OwnDraws(seed)

    @torch.no_grad()
    def get_action(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose actions; see ``Policy.forward``."""
        self._gate()
        with self._lock:
            self._refresh()
            with self._draws:
                step = self.module.get_action(td, deterministic)
            step["policy_version"] = torch.full(td.batch_size, self._version, device=step["action"].device)
        return step

    @torch.no_grad()
    def get_value(self, td: TensorDict) -> TensorDict:
        """Write ``value`` and ``policy_version``, by the snapshot in use; see ``Policy.get_value``."""
        with self._lock:
            td = valued(self.module, td)
            td["policy_version"] = torch.full(td.batch_size, self._version, device=td["value"].device)
        return td

    def _refresh(self) -> None:
        snapshot = self._publisher.latest
        if snapshot.version != self._version:
            with torch.no_grad():
                for name, value in snapshot.tensors.items():
                    self._tensors[name].copy_(value)
            self._version = snapshot.version


# All of torch's functions that draw and take a generator.
_DRAWING: frozenset[Callable[..., Any]] = frozenset(
    (
        torch.bernoulli,
        torch.multinomial,
        torch.normal,
        torch.poisson,
        torch.rand,
        torch.rand_like,
        torch.randint,
        torch.randint_like,
        torch.randn,
        torch.randn_like,
        torch.randperm,
        torch._standard_gamma,
        *(
            getattr(Tensor, f"{name}_")
            for name in ("bernoulli", "cauchy", "exponential", "geometric", "log_normal", "normal", "random", "uniform")
        ),
        Tensor.bernoulli,
        Tensor.multinomial,
    )
)


class OwnDraws(TorchFunctionMode):
    """Inside this context, random draws of the current thread come from separate generators, one per device.

    Draws of several threads from torch's global generator depend on each other's timing. With this, the global
    generator is the learner's alone, and an update can be repeated. Dropout takes no generator: its draws stay global.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a torch function; pass a generator to functions that draw."""
        kwargs = kwargs or {}
        if func in _DRAWING and kwargs.get("generator") is None:
            kwargs = {**kwargs, "generator": self._generator(_device_of(args, kwargs))}
        return func(*args, **kwargs)

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]


def _device_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.device:
    """Return the device of a function's result."""
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"])
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
    return tensors[0].device if tensors else torch.get_default_device()
