"""Synchronous collection of rollouts.

Legend: N envs, T rollout steps, O flattened observation size, A action size.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from embodichain.agents.rl.collector.base import BaseCollector, StepCallback
from embodichain.agents.rl.collector.step_info import FinalSlots, StepInfo
from embodichain.agents.rl.models import Actor, policy_input, valued
from embodichain.agents.rl.models.policy import allocate_for, with_defaults
from embodichain.agents.rl.vec_env import Step, VecEnv, step_with
from embodichain.utils import ConfigError
from embodichain.utils.device import torch_threads
from embodichain.utils.observations import flat_input, select_entries
from embodichain.utils.profiling import section

_FLAGS = ("done", "terminated", "truncated")
_CHECKED = 2  # steps


class SyncCollector(BaseCollector):
    """Steps the environments with the current policy, and returns when the rollout is complete.

    Episodes and the policy's recurrent state continue from one rollout to the next: the environments are reset once,
    by the constructor, and then reset themselves, unless ``reset`` is called. The first steps are checked: the
    environments must write their results into the rollout.

    Args:
        device: device of the policy and the collector's own rollout.
        on_step_callback: function called after every step.
        versioned: the policy writes its ``policy_version`` [N], and the rollouts have it.

    Raises:
        ConfigError: the environment's observation lacks an entry that the policy reads, or the policy chooses chunks
            of actions that the environment does not execute.
    """

    def __init__(
        self,
        env: VecEnv,
        policy: Actor,
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
        with _threads_beside(env):
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
        if not self._is_env_checked:
            take = _checked_steps(take, rollout, type(env).__name__)
            self._is_env_checked = True
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
                    next_obs, _, terminated, truncated, info = take(step["action"].to(env.device))
                inputs["obs"][t + 1].copy_(flat_input(next_obs))
                if reads_entries:
                    inputs["entries"][t + 1].copy_(select_entries(next_obs, policy.obs_keys))
                if is_recurrent:
                    done = (terminated | truncated).to(self.device)
                    inputs["state"][t + 1].copy_(step["next_state"].masked_fill(done.unsqueeze(-1), 0.0))
                filled = t + 1
                step_info.write(t, info)
                self._write_final(final, t, truncated & ~terminated, step, info)
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

    def _write_final(self, out: FinalSlots, t: int, cut: Tensor, step: TensorDict, info: dict[str, Any]) -> None:
        """Write value and input of the final observations of the truncated episodes, ``cut`` [N]."""
        is_free = _is_free_to_read(cut)
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


def _threads_beside(env: VecEnv) -> AbstractContextManager[None]:
    """Keep torch to one thread while environments step on the CPU.

    After each operation torch's idle workers spin for a while, on cores that the physics threads need.
    """
    return torch_threads(1) if env.device.type == "cpu" else nullcontext()


def _checked_steps(step: Step, rollout: TensorDict, name: str) -> Step:
    """Return a ``step`` that in its first calls raises ConfigError if the rollout [N, T+1] lacks their results.

    The first slots get values that no environment writes: NaN rewards, and flags that are all True, then all
    False. This detects unwritten slots even among rewards of 0. ``name`` is the environment's class, for messages.
    """
    num_checked = min(_CHECKED, rollout.batch_size[1] - 1)
    rollout["reward"][:, :num_checked] = torch.nan
    for flag in _FLAGS:
        rollout[flag][:, :num_checked] = torch.arange(num_checked, device=rollout[flag].device) == 0
    num_done = 0

    def checked(action: Tensor) -> tuple[TensorDict, Tensor, Tensor, Tensor, dict[str, Any]]:
        nonlocal num_done
        results = step(action)
        if num_done < num_checked:
            _, reward, terminated, truncated, _ = results
            returned = {"reward": reward, "done": terminated | truncated}
            returned |= {"terminated": terminated, "truncated": truncated}
            _check_slot(rollout[:, num_done], returned, num_done, name)
            num_done += 1
        return results

    return checked


def _check_slot(slot: TensorDict, returned: dict[str, Tensor], index: int, name: str) -> None:
    wrong = [field for field, values in returned.items() if not _is_same(slot[field], values)]
    if wrong:
        raise ConfigError(
            f"{name}: step returned {', '.join(wrong)} that slot {index} of the rollout does not have: after "
            "set_rollout_buffer(rollout), the k-th step must write reward, done, terminated and truncated into slot k "
            "(see VecEnv in embodichain/agents/rl/vec_env.py)"
        )


def _is_same(written: Tensor, returned: Tensor) -> bool:
    if written.shape != returned.shape:
        return False
    return bool(torch.allclose(written, returned.to(written), rtol=0.0, atol=0.0, equal_nan=True))
