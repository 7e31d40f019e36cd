"""Collection in turn with the updates.

Legend: N envs, T rollout steps, O flattened observation size, A action size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from tensordict import TensorDict

from embodichain.agents.rl.buffer import allocate_rollout
from embodichain.agents.rl.collector.base import BaseCollector, StepCallback
from embodichain.agents.rl.models import Policy
from embodichain.agents.rl.vec_env import VecEnv
from embodichain.utils.observations import flatten_dict_observation

__all__ = ["SyncCollector"]


class SyncCollector(BaseCollector):
    """Steps the environments with the current policy, and returns when the rollout is complete.

    Episodes run on from one rollout to the next: the environments are reset once, here, and then reset themselves,
    unless ``reset`` is called.

    Args:
        env: the environments.
        policy: chooses the actions; on ``device``.
        device: where the policy and the collector's own rollout live.
        on_step_callback: called after every step.
    """

    def __init__(
        self, env: VecEnv, policy: Policy, device: torch.device | str, on_step_callback: StepCallback | None = None
    ) -> None:
        self.env = env
        self.policy = policy
        self.device = torch.device(device)
        self.on_step_callback = on_step_callback
        self._rollout: TensorDict | None = None
        self.reset()

    def reset(self) -> None:
        """Begin new episodes in all environments; see ``BaseCollector.reset``."""
        obs, _ = self.env.reset()
        self._obs = flatten_dict_observation(obs).to(self.device, copy=True)  # [N, O], where the next rollout starts

    @torch.no_grad()
    def collect(self, num_steps: int, rollout: TensorDict | None = None) -> TensorDict:
        """Run the policy for ``num_steps`` steps in every environment; see ``BaseCollector.collect``."""
        env = self.env
        shape = torch.Size([env.num_envs, num_steps + 1])
        if rollout is None:
            if self._rollout is None or self._rollout.batch_size != shape:
                action_shape = env.action_space.shape
                assert action_shape is not None  # it is a Box
                self._rollout = allocate_rollout(
                    env.num_envs, num_steps, self._obs.shape[-1], action_shape[-1], self.device
                )
            rollout = self._rollout
        elif rollout.batch_size != shape:
            raise ValueError(f"rollout has batch size {list(rollout.batch_size)}, needed is [N, T+1] = {list(shape)}")
        env.set_rollout_buffer(rollout)
        with _one_thread_beside(env):
            self._fill(rollout, num_steps)
        return rollout

    def _fill(self, rollout: TensorDict, num_steps: int) -> None:
        env, batch_size = self.env, rollout.batch_size[:1]
        # One list of [N, ...] slots for each field: slicing the rollout at every step costs more than the copies.
        obs, actions, log_probs, values, final_values = (
            rollout[name].transpose(0, 1).unbind(0)
            for name in ("obs", "action", "sample_log_prob", "value", "final_value")
        )
        rollout["final_value"].zero_()
        obs[0].copy_(self._obs)
        for t in range(num_steps):
            step = self.policy.get_action(TensorDict({"obs": obs[t]}, batch_size=batch_size))
            actions[t].copy_(step["action"])
            log_probs[t].copy_(step["sample_log_prob"])
            values[t].copy_(step["value"])

            next_obs, _, terminated, truncated, info = env.step(step["action"].to(env.device))
            obs[t + 1].copy_(flatten_dict_observation(next_obs))
            self._write_final_value(final_values[t], truncated & ~terminated, info)
            if self.on_step_callback is not None:
                self.on_step_callback(step, info)
        values[num_steps].copy_(self._value(obs[num_steps]))
        self._obs = obs[num_steps].clone()

    def _write_final_value(self, out: torch.Tensor, cut: torch.Tensor, info: dict[str, Any]) -> None:
        """Write V(final observation) into ``out`` [N] where ``cut`` [N]."""
        if cut.device.type == "cpu":
            # The host reads the flags for nothing here, and few rows are cut at any one step.
            if cut.any():
                final_obs = flatten_dict_observation(info["final_obs"])[cut].to(self.device)
                out[cut.to(out.device)] = self._value(final_obs)
        else:
            # Reading them would wait for the device at every step: all rows are valued instead.
            final_obs = flatten_dict_observation(info["final_obs"]).to(self.device)
            out.copy_(torch.where(cut.to(self.device), self._value(final_obs), 0.0))

    def _value(self, obs: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = self.policy.get_value(TensorDict({"obs": obs}, batch_size=obs.shape[:1]))["value"]
        return value


@contextmanager
def _one_thread_beside(env: VecEnv) -> Iterator[None]:
    """Keep torch to one thread while environments step on the CPU.

    After each operation torch's idle workers spin for a while, on cores that the physics threads need.
    """
    if env.device.type != "cpu":
        yield
        return
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
