"""Collectors of rollouts: their interface, and the synchronous one.

Legend: N envs, T rollout steps, O flattened observation size, A action size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.models.policy import allocate_for, policy_input, valued, with_defaults
from embodichain.agents.rl.vec_env import VecEnv, step_with
from embodichain.utils import ConfigError
from embodichain.utils.device import torch_threads
from embodichain.utils.observations import flat_input, select_entries
from embodichain.utils.profiling import section

_CHECKED = 2  # steps
_NUMBERS = ("rewards", "metrics")  # of a step's info

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

        It is complete, [N, T+1], with the fields of ``buffer/layout.py``. ``rollout`` is written into, as from
        ``RolloutBuffer.start_rollout``; None: the collector's own storage, which the next call may overwrite.
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


class SyncCollector(BaseCollector):
    """Steps the environments with the current policy, and returns when the rollout is complete.

    Episodes and the policy's recurrent state continue from one rollout to the next: the environments are reset once,
    by the constructor, and then reset themselves, unless ``reset`` is called. The first steps are checked: the
    environments must write their results into the rollout.

    Args:
        policy: a ``Policy``, or an object with its ``get_action`` and ``get_value``.
        device: device of the policy and the collector's own rollout.
        on_step_callback: function called after every step.
        versioned: the policy writes its ``policy_version`` [N], and the rollouts have it.
    """

    def __init__(
        self,
        env: VecEnv,
        policy: Any,
        device: torch.device | str,
        on_step_callback: StepCallback | None = None,
        *,
        versioned: bool = False,
    ) -> None:
        self.env = env
        self.policy = policy = with_defaults(policy)
        self.device = torch.device(device)
        self.on_step_callback = on_step_callback
        self._rollout: TensorDict | None = None
        self._is_env_checked = False
        step_with(env, policy.chunk_length)  # refused now rather than in the first rollout
        self._bootstrap = ("value", "policy_version") if versioned else ("value",)
        self._written = ("action", "sample_log_prob", *self._bootstrap, *(name for name, _ in policy.extra_fields))
        self.reset()

    def reset(self) -> None:
        """Begin new episodes in all environments, with the policy's recurrent state 0."""
        obs, _ = self.env.reset()
        state = None
        if self.policy.state_size:
            state = torch.zeros(self.env.num_envs, self.policy.state_size, device=self.device)
        self._next = policy_input(self.policy, obs, state, self.device).clone()  # the next rollout's first input

    def state_dict(self) -> dict[str, Any]:
        """Return the policy's next input, with the recurrent state."""
        return {"next": self._next}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the result of ``state_dict``."""
        self._next = state["next"].to(self.device)

    def env_state_dict(self) -> dict[str, Any] | None:
        """Return the environments' state; see ``BaseCollector.env_state_dict``."""
        state: dict[str, Any] | None = getattr(self.env, "state_dict", lambda: None)()
        return state

    def load_env_state_dict(self, state: dict[str, Any]) -> bool:
        """Load the result of ``env_state_dict``; see ``BaseCollector.load_env_state_dict``."""
        load = getattr(self.env, "load_state_dict", None)
        if load is None:
            return False
        if load(state) is False:
            self.reset()
            return False
        return True

    @torch.no_grad()
    def collect(self, num_steps: int, rollout: TensorDict | None = None) -> TensorDict:
        """Run the policy for ``num_steps`` steps in every environment; see ``BaseCollector.collect``."""
        if self.reset_every_rollout:
            self.reset()
        env = self.env
        shape = torch.Size([env.num_envs, num_steps + 1])
        if rollout is None:
            if self._rollout is None or self._rollout.batch_size != shape:
                self._rollout = self.allocate(num_steps)
            rollout = self._rollout
        elif rollout.batch_size != shape:
            raise ValueError(f"rollout has batch size {list(rollout.batch_size)}, needed is [N, T+1] = {list(shape)}")
        env.set_rollout_buffer(rollout)
        # After each operation torch's idle workers spin for a while, on cores that the physics threads need.
        with torch_threads(1) if env.device.type == "cpu" else nullcontext():
            self._fill(rollout, num_steps)
        return rollout

    def allocate(self, num_steps: int) -> TensorDict:
        """Return new storage for a rollout of ``num_steps`` steps, [N, T+1]."""
        action_shape = self.env.action_space.shape
        assert action_shape is not None  # it is a Box
        return allocate_for(
            self.policy,
            self.env.num_envs,
            num_steps,
            self._next["obs"].shape[-1],
            action_shape[-1],
            self.device,
            self._next.get("entries", None),
            obs_dtype=self._next["obs"].dtype,
            has_final=self.keeps_final_obs,
            is_versioned="policy_version" in self._bootstrap,
        )

    def _fill(self, rollout: TensorDict, num_steps: int) -> None:
        env, policy, batch_size = self.env, self.policy, rollout.batch_size[:1]
        take = step_with(env, policy.chunk_length)
        num_checked = 0 if self._is_env_checked else min(_CHECKED, num_steps)
        self._is_env_checked = True
        if num_checked:  # values that no environment writes: unwritten slots are found even among rewards of 0
            rollout["reward"][:, :num_checked] = torch.nan
            for flag in ("done", "terminated", "truncated"):
                rollout[flag][:, :num_checked] = torch.arange(num_checked, device=rollout[flag].device) == 0
        # One list of [N, ...] slots for each field: slicing the rollout at every step costs more than the copies.
        written = {name: rollout[name].transpose(0, 1).unbind(0) for name in self._written}
        final = FinalSlots(rollout)
        step_info = StepInfo(rollout)
        inputs = self._input_slots(rollout)
        for name, slots in inputs.items():
            slots[0].copy_(self._next[name])
        reads_entries, is_recurrent = bool(policy.obs_keys), policy.state_size > 0
        filled = 0
        try:
            for t in range(num_steps):
                given = {name: slots[t] for name, slots in inputs.items()}
                with section("policy"):
                    step = policy.get_action(TensorDict(given, batch_size=batch_size))
                for name, slots in written.items():
                    slots[t].copy_(step[name])

                with section("environment"):
                    next_obs, reward, terminated, truncated, info = take(step["action"].to(env.device))
                if t < num_checked:
                    flags = {"done": terminated | truncated, "terminated": terminated, "truncated": truncated}
                    _check_slot(rollout[:, t], {"reward": reward, **flags}, t, type(env).__name__)
                inputs["obs"][t + 1].copy_(flat_input(next_obs))
                if reads_entries:
                    inputs["entries"][t + 1].copy_(select_entries(next_obs, policy.obs_keys))
                if is_recurrent:
                    done = (terminated | truncated).to(self.device)
                    inputs["state"][t + 1].copy_(step["next_state"].masked_fill(done.unsqueeze(-1), 0.0))
                filled = t + 1
                step_info.write(t, info)
                self._write_final(final, t, terminated, truncated, step, info)
                if self.on_step_callback is not None:
                    self.on_step_callback(step, info)
        finally:
            # If an error ends the rollout early, the next one starts where the environments are.
            self._next = TensorDict(
                {name: slots[filled] for name, slots in inputs.items()}, batch_size=batch_size
            ).clone()
        step_info.finish()
        bootstrap = self._valued(self._next.copy())
        for name in self._bootstrap:
            written[name][num_steps].copy_(bootstrap[name])

    def _input_slots(self, rollout: TensorDict) -> dict[str, Any]:
        """Return the policy's input of each slot by name: tensors or, of ``entries``, TensorDicts."""
        slots: dict[str, Any] = {"obs": rollout["obs"].transpose(0, 1).unbind(0)}
        if self.policy.obs_keys:
            slots["entries"] = rollout["entries"].unbind(1)
        if self.policy.state_size:
            slots["state"] = rollout["state"].transpose(0, 1).unbind(0)
        return slots

    def _write_final(
        self, out: FinalSlots, t: int, terminated: Tensor, truncated: Tensor, step: TensorDict, info: dict[str, Any]
    ) -> None:
        """Write value and input of the final observations of the truncated episodes that did not terminate [N]."""
        is_free = _is_free_to_read(truncated)
        if is_free and not truncated.any():  # at most steps
            return
        cut = truncated & ~terminated
        if is_free and not cut.any():
            return
        # Few rows are cut at one step. On a GPU the host would wait to learn which: there all rows are valued.
        state = step["next_state"] if self.policy.state_size else None
        given = policy_input(self.policy, info["final_obs"], state, self.device, cut if is_free else slice(None))
        out.write(t, cut.to(self.device), given, self._valued(given.copy())["value"], is_free)

    @section("value")
    def _valued(self, td: TensorDict) -> TensorDict:
        return valued(self.policy, td)


def _is_free_to_read(flags: Tensor) -> bool:
    """Return whether the host reads flags without waiting for a GPU."""
    return flags.is_cpu


def _check_slot(slot: TensorDict, returned: dict[str, Tensor], index: int, name: str) -> None:
    """Raise a ConfigError if a slot of the rollout lacks what a step of the environment ``name`` returned."""
    wrong = []
    for field, values in returned.items():
        written = slot[field]
        if written.shape != values.shape or not torch.allclose(written, values.to(written), 0.0, 0.0, equal_nan=True):
            wrong.append(field)
    if wrong:
        raise ConfigError(
            f"{name}: step returned {', '.join(wrong)} that slot {index} of the rollout does not have: after "
            "set_rollout_buffer(rollout), the k-th step must write reward, done, terminated and truncated into slot k "
            "(see VecEnv in embodichain/agents/rl/vec_env.py)"
        )


class StepInfo:
    """Fills ``info`` of one rollout (see ``buffer/layout.py``) from the steps' ``info``."""

    def __init__(self, rollout: TensorDict) -> None:
        self._rollout = rollout
        self._num_envs, self._num_slots = rollout.batch_size
        self._flags: dict[str, Tensor] = {}  # [T+1, N] bool
        self._names: list[str] = []
        self._slots: tuple[Tensor, ...] = ()  # T+1 of [K, N]
        self._block: Tensor | None = None  # [T+1, K, N]
        if "info" in rollout.keys():  # noqa: SIM118 (a TensorDict, not a dict)
            del rollout["info"]

    def write(self, t: int, info: dict[str, Any]) -> None:
        """Store the ``info`` of step ``t``; steps in order."""
        # Flags on their own: stacked with numbers they take several times as long.
        for name in ("success", "diverged"):
            if name in info:
                if name not in self._flags:
                    shape = self._num_slots, self._num_envs
                    self._flags[name] = torch.zeros(shape, dtype=torch.bool, device=info[name].device)
                self._flags[name][t] = info[name]
        values: list[Tensor] = []
        for kind in _NUMBERS if "success" in info else ():
            for value in info[kind].values():
                if value.dim() > 1:  # of a chunk of actions, [N, H]
                    value = sum_over_chunk(value, info["executed"]) if kind == "metrics" else value.sum(1)
                values.append(value)
        if values:
            if self._block is None:
                self._names = [f"{kind}/{name}" for kind in _NUMBERS for name in info[kind]]
                self._block = torch.zeros(self._num_slots, len(self._names), self._num_envs, device=values[0].device)
                self._slots = self._block.unbind(0)
            torch.stack(values, out=self._slots[t])

    def finish(self) -> None:
        """Write the stored steps into the rollout; slot T is 0."""
        batch_size, device = self._rollout.batch_size, self._rollout.device
        fields = {name: flags.transpose(0, 1) for name, flags in self._flags.items()}
        if self._block is not None:
            self._block[-1] = 0.0
            fields |= zip(self._names, self._block.permute(1, 2, 0).unbind(0), strict=True)
        if fields:
            self._rollout["info"] = TensorDict(fields, batch_size, device=device)


def sum_over_chunk(value: Tensor, executed: Tensor) -> Tensor:
    """Return the sum of a metric over the executed steps of a chunk, [N]; steps that lack it have the others' mean.

    Args:
        value: [N, H], 0 where not executed.
        executed: [N, H] bool.
    """
    given = executed & ~value.isnan()
    return torch.where(given, value, 0.0).sum(1) * executed.sum(1) / given.sum(1)


class FinalSlots:
    """Fills the fields of a rollout [N, T+1] that only truncated steps have; they are 0 in all others."""

    def __init__(self, rollout: TensorDict) -> None:
        rollout["final_value"].zero_()
        self._values = rollout["final_value"].transpose(0, 1).unbind(0)
        self._inputs: dict[Any, tuple[Tensor, ...]] = {}  # by key
        if "final" in rollout.keys():  # noqa: SIM118 (a TensorDict, not a dict)
            final = rollout["final"].zero_()
            for key in final.keys(include_nested=True, leaves_only=True):
                self._inputs[key] = final[key].transpose(0, 1).unbind(0)

    def write(self, t: int, cut: Tensor, given: TensorDict, value: Tensor, is_rows: bool) -> None:
        """Write the policy's input and value into slot ``t`` of the rows ``cut`` [N]; ``is_rows``: for these alone."""
        columns = [(self._values[t], value), *((slots[t], given[key]) for key, slots in self._inputs.items())]
        for slot, values in columns:
            if is_rows:
                slot[cut] = values
            else:
                slot.copy_(torch.where(cut.reshape(-1, *[1] * (slot.dim() - 1)), values, torch.zeros_like(slot)))
