"""Collection in the background, during the updates, with a copy of the policy.

The learner passes its policy on as versioned snapshots, never as a shared module.

Legend: N envs, T rollout steps, G sets of N environments.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.overrides import TorchFunctionMode

from embodichain.agents.rl.buffer import BufferClosedError, RolloutOrigin, VLABuffer
from embodichain.agents.rl.collector.sync_collector import BaseCollector, StepCallback, SyncCollector
from embodichain.agents.rl.models.policy import Policy, valued
from embodichain.agents.rl.vec_env import VecEnv
from embodichain.utils import logger
from embodichain.utils.state import freeze, thaw


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


# All functions of torch, and methods of a tensor, that draw and take a generator.
_FUNCTIONS = (
    *("bernoulli", "binomial", "multinomial", "normal", "poisson", "rand", "rand_like", "randint", "randint_like"),
    *("randn", "randn_like", "randperm", "_sample_dirichlet", "_standard_gamma"),
)
_METHODS = (
    *("bernoulli", "multinomial", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_"),
    *("random_", "uniform_"),
)
_DRAWING = frozenset([getattr(torch, name) for name in _FUNCTIONS] + [getattr(Tensor, name) for name in _METHODS])


class OwnDraws(TorchFunctionMode):
    """Inside this context, random draws of the current thread come from separate generators, one per device.

    Draws of several threads from torch's global generator depend on each other's timing. With this, the global
    generator is the learner's alone, and an update can be repeated. Dropout, and what draws inside of
    torch, such as ``gumbel_softmax``, take no generator: their draws stay global.
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


class EnvSet:
    """Fills newly allocated rollouts from one set of environments, one thread at a time."""

    def __init__(
        self,
        index: int,
        env: VecEnv,
        policy: InferencePolicy,
        device: torch.device | str,
        on_step_callback: StepCallback | None,
    ) -> None:
        self.index = index
        self.collector = SyncCollector(env, policy, device, on_step_callback, versioned=True)
        self._state: dict[str, Any] | None = None
        self._begun = 0
        self._last = -1  # number of the last rollout that was handed out

    def collect(self, num_steps: int, resets: bool, keeps_final_obs: bool) -> TensorDict:
        """Return a new rollout [N, T+1] with ``policy_version`` and ``origin``; ``resets``: begin new episodes."""
        number, self._begun = self._begun, self._begun + 1
        if resets:
            self.collector.reset()
        rollout = self.collector.collect(num_steps, self.allocate(num_steps, keeps_final_obs))
        # New episodes are whole, even if rollouts before them were dropped.
        rollout.set_non_tensor("origin", RolloutOrigin(self.index, number, resets, self._capture()))
        return rollout

    def allocate(self, num_steps: int, keeps_final_obs: bool) -> TensorDict:
        """Return new storage for a rollout [N, T+1]."""
        self.collector.keeps_final_obs = keeps_final_obs
        return self.collector.allocate(num_steps)

    def reset(self) -> None:
        """Begin new episodes in all environments."""
        self.collector.reset()
        self._state = None

    def save_state(self) -> None:
        """Make the current state the one to resume from."""
        self._state = self._capture()

    def hand_out(self, rollout: TensorDict) -> None:
        """Set a rollout's ``origin.continues`` as the learner gets it; its state is the one to resume from."""
        origin: RolloutOrigin = rollout["origin"]
        continues = origin.continues or origin.number == self._last + 1
        rollout.set_non_tensor("origin", replace(origin, continues=continues))
        self._state, self._last = origin.state, origin.number

    def state(self) -> dict[str, Any]:
        """Return ``env`` and ``collector`` to resume from, as plain data."""
        return self._state if self._state is not None else self._capture()

    def load_state(self, state: dict[str, Any]) -> None:
        """Load ``collector`` of the result of ``state``."""
        self.collector.load_state_dict(state)
        self._state, self._last = None, self._begun - 1

    def load_env_state(self, state: dict[str, Any]) -> bool:
        """Load ``env`` of the result of ``state``; return whether the environments can."""
        self._state = None
        return self.collector.load_env_state_dict(state)

    def _capture(self) -> dict[str, Any]:
        # A copy, as the environments continue; thawed, so that it equals their result.
        live = {"env": self.collector.env_state_dict(), "collector": self.collector.state_dict()}
        state: dict[str, Any] = thaw(freeze(live))
        return state


class _StoppedError(Exception):
    """Ends a collecting thread."""


class AsyncCollector(BaseCollector):
    """Collects rollouts in background threads, with a copy of the policy, while the learner updates.

    The learner calls ``collect`` for the next rollout, as with ``SyncCollector``, and may change the policy between two
    calls. Each call publishes the current policy as a new version; the collecting threads load the newest between two
    forward passes. So no thread shares a module, and a rollout's later steps may be of later versions.

    The staleness of a step is the number of versions published since its action was chosen, when its rollout is
    handed out. It is bounded by admission: at most ``max_staleness`` + 1 rollouts are under way at any time, being
    collected, waiting, or being learned from; and they are handed out in the order in which they were begun. A rollout
    begun when k others were under way is handed out after k more updates at most, and k <= ``max_staleness``. With 0,
    collecting and learning take turns, and so do the env sets: a training is reproducible, bit for bit on the CPU, and
    with one set it equals that of ``SyncCollector``. G sets and the learner keep busy with ``max_staleness`` G.

    Rollouts have a ``SyncCollector``'s fields and ``policy_version``, ``lag`` and ``origin`` (see
    ``buffer/layout.py``). No other object holds their storage.

    Before ``start`` and after ``stop``, ``collect`` collects in the calling thread, from the first set.

    Args:
        env: the environments; or G sets of them that differ in their random streams only, each stepped by a separate
            thread, so that one steps while the policy infers for another.
        buffer: queue of finished rollouts for the learner; with room for fewer than ``max_staleness`` of them,
            the threads wait for the learner more often.
        device: device of the policy and the rollouts.
        on_step_callback: function called after every step, in the thread that made it.
        max_staleness: the bound above, at least 0.
    """

    def __init__(
        self,
        env: VecEnv | Sequence[VecEnv],
        policy: Policy,
        buffer: VLABuffer,
        device: torch.device | str,
        on_step_callback: StepCallback | None = None,
        *,
        max_staleness: int = 1,
    ) -> None:
        envs = list(env) if isinstance(env, Sequence) else [env]
        self.buffer = buffer
        self.max_staleness = max_staleness
        self.num_env_sets = len(envs)
        self._learning = policy
        self.publisher = PolicyPublisher(policy)
        self.inference = InferencePolicy(policy, self.publisher, self._gate)
        self._env_sets = [EnvSet(i, env, self.inference, device, on_step_callback) for i, env in enumerate(envs)]
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()  # guards the fields below
        self._stopping = False
        self._paused = False
        self._active = 0  # threads that may step an environment
        self._under_way = 0  # rollouts begun and not yet learned from, with dropped ones
        self._dropped_before = 0  # at the last start()
        self._begun = 0
        self._next_env_set = 0  # begins the next rollout, if sets take turns
        self._waiting: list[int] = []  # env sets that wait for their next rollout, the longest first
        self._turn = 0  # number of the rollout to put into the buffer next
        self._abandoned = 0  # rollouts that were begun and not finished
        self._num_steps: int | None = None
        self._is_learning = False  # from a rollout that was handed out
        self._error: BaseException | None = None
        self._scalars: dict[str, float] = {}

    @property
    def is_running(self) -> bool:
        """Whether rollouts are collected in the background."""
        return bool(self._threads)

    # --- the learner's side ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Publish the current policy and start collecting in the background. Idempotent.

        The threads wait for the first call of ``collect``, which gives the rollouts' length.
        """
        if self.is_running:
            return
        self._stopping, self._error, self._num_steps, self._is_learning = False, None, None, False
        self._under_way, self._dropped_before = 0, self.buffer.get_stats()["dropped"]
        self._waiting.clear()
        self._turn = self._begun
        self._active = self.num_env_sets
        self.inference.module.load_state_dict(self._learning.state_dict())  # frozen parameters are in no snapshot
        self.publisher.publish()
        # Separate generators, so that the updates draw from torch's global ones alone.
        self.inference.draw_from(int(torch.randint(2**62, ())) if self.max_staleness else None)
        self.buffer.reopen()
        self._threads = [
            threading.Thread(target=self._work, args=[env_set], name=f"collector-{env_set.index}", daemon=True)
            for env_set in self._env_sets
        ]
        for env_set, thread in zip(self._env_sets, self._threads, strict=True):
            env_set.save_state()
            thread.start()

    def stop(self, timeout: float = 30.0) -> None:
        """Stop the threads and drop all rollouts that were not handed out. Idempotent.

        The environments are not reset, and ``start`` continues with them.

        Args:
            timeout: seconds until the threads must have ended, each before its next forward pass; then a TimeoutError.
        """
        if not self._threads:
            return
        deadline = time.monotonic() + timeout
        self._end()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            raise TimeoutError(f"the collector has not ended within {timeout} s: a forward pass or a step takes longer")
        self._threads = []
        self.inference.draw_from(None)
        self.buffer.clear()
        self._abandoned = self._begun - self.buffer.get_stats()["produced"]
        if isinstance(self._error, Exception):  # not a signal, which the learner gets itself
            logger.log_warning(f"the collector failed after the last call of collect: {self._error!r}")
        self._error = None

    def collect(self, num_steps: int, rollout: TensorDict | None = None) -> TensorDict:
        """Publish the current policy, and return the next rollout, or raise what ended a thread.

        Args:
            num_steps: T; the same for all calls between ``start`` and ``stop``.
            rollout: the fields are copied into it; None: return the storage of the collection, now the caller's.
        """
        if not self.is_running:
            self.publisher.publish()
            taken = self._env_sets[0].collect(num_steps, self.reset_every_rollout, self.keeps_final_obs)
            self._env_sets[0].hand_out(taken)  # no turn: these are the first set's alone
        else:
            taken = self._next_rollout(num_steps)
        taken["lag"] = self.publisher.latest.version - taken["policy_version"]
        self._describe(taken)
        if rollout is None:
            return taken
        return rollout.update(taken)

    def allocate(self, num_steps: int) -> TensorDict:
        """Return new storage for a rollout; see ``BaseCollector.allocate``."""
        return self._env_sets[0].allocate(num_steps, self.keeps_final_obs)

    def reset(self) -> None:
        """Begin new episodes in all environments."""
        if self.is_running:
            raise RuntimeError(
                "the environments cannot be reset while they are stepped in the background: stop() first"
            )
        for env_set in self._env_sets:
            env_set.reset()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside this context no environment steps: threads end their current step, and continue afterwards."""
        with self._changed:
            self._paused = True
            self._changed.wait_for(lambda: self._active == 0)
        try:
            self._raise_error()
            yield
        finally:
            with self._changed:
                self._paused = False
                self._changed.notify_all()

    def scalars(self) -> dict[str, float]:
        """Return the mean and highest lag of the last rollout, and the number of dropped rollouts so far."""
        return self._scalars

    def state_dict(self) -> dict[str, Any]:
        """Return the state of each env set after its last rollout that was handed out, and which set is next.

        A training resumed from it collects unfinished rollouts again; nothing is learned from twice.
        """
        return {
            "version": self.publisher.latest.version,
            "next_group": self._next_env_set,
            "groups": [env_set.state()["collector"] for env_set in self._env_sets],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the result of ``state_dict``."""
        self.publisher.publish(state["version"])
        self._next_env_set = state["next_group"]
        for env_set, own in zip(self._env_sets, state["groups"], strict=True):
            env_set.load_state(own)

    def env_state_dict(self) -> dict[str, Any] | None:
        """Return the environments' states that belong to ``state_dict``; None if they do not save theirs."""
        states = [env_set.state()["env"] for env_set in self._env_sets]
        return None if None in states else {"groups": states}

    def load_env_state_dict(self, state: dict[str, Any]) -> bool:
        """Load the result of ``env_state_dict``."""
        return all(
            [env_set.load_env_state(own) for env_set, own in zip(self._env_sets, state["groups"], strict=True)]  # noqa: C419 (all of them)
        )

    def _next_rollout(self, num_steps: int) -> TensorDict:
        if self._num_steps not in (None, num_steps):
            raise ValueError(f"rollouts of {self._num_steps} steps are under way, got num_steps {num_steps}")
        self._raise_error()
        if self._is_learning:
            self.publisher.publish()
        with self._changed:
            self._under_way -= self._is_learning
            self._is_learning = False
            self._num_steps = num_steps
            self._changed.notify_all()
        try:
            taken = self.buffer.get()
        except BaseException:
            self._error = None  # it is raised now
            raise
        self._is_learning = True
        index = taken["origin"].env_set
        self._env_sets[index].hand_out(taken)
        self._next_env_set = (index + 1) % self.num_env_sets
        return taken

    def _describe(self, rollout: TensorDict) -> None:
        lag = rollout["lag"][:, :-1]
        dropped = self.buffer.get_stats()["dropped"] + self._abandoned
        self._scalars = {
            "async/lag_mean": lag.float().mean().item(),
            "async/lag_max": float(lag.max()),
            "async/dropped_rollouts": float(dropped),
        }

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    # --- the collecting threads' side ---------------------------------------------------------------------------------

    def _work(self, env_set: EnvSet) -> None:
        try:
            while True:
                number = self._begin(env_set.index)
                assert self._num_steps is not None
                rollout = env_set.collect(self._num_steps, self.reset_every_rollout, self.keeps_final_obs)
                self._hand_over(number, rollout)
        except (_StoppedError, BufferClosedError):
            pass
        except BaseException as error:  # noqa: BLE001 (raised again where the learner waits)
            self._error = error
            self._end()
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    def _begin(self, index: int) -> int:
        """Wait until an env set may begin a rollout; return the rollout's number."""
        with self._changed:
            self._waiting.append(index)
        with self._parked(lambda: self._may_begin(index)):
            self._waiting.remove(index)
            self._under_way += 1
            self._begun += 1
            self._changed.notify_all()  # another set is the first now
            return self._begun - 1

    def _may_begin(self, index: int) -> bool:
        # Without an order, a thread that has just ended a rollout often precedes the ones that must wake first.
        if index != (self._next_env_set if self.max_staleness == 0 else self._waiting[0]):
            return False
        dropped = self.buffer.get_stats()["dropped"] - self._dropped_before
        return self._num_steps is not None and self._under_way - dropped <= self.max_staleness

    def _hand_over(self, number: int, rollout: TensorDict) -> None:
        """Wait until all earlier rollouts are in the buffer, and for room in it; then add."""
        with self._parked(lambda: self._turn == number):
            self._active -= 1
            self._changed.notify_all()
        try:
            self.buffer.add_rollout(rollout)
        finally:
            with self._changed:
                self._active += 1
                self._turn += 1
                self._changed.notify_all()

    def _gate(self) -> None:
        """Between two forward passes: end the thread if the collector stops, wait if it pauses."""
        if (self._stopping or self._paused) and threading.current_thread() in self._threads:
            with self._parked(lambda: True):
                pass

    @contextmanager
    def _parked(self, is_ready: Callable[[], bool]) -> Iterator[None]:
        """Wait inactive until ready and not paused; then run the body under the lock."""
        with self._changed:
            self._active -= 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._stopping or (is_ready() and not self._paused))
            self._active += 1
            if self._stopping:
                raise _StoppedError
            yield

    def _end(self) -> None:
        """Let all threads end, waiting ones included."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self.buffer.close(self._error)
