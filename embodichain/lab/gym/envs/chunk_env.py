"""Chunks of actions: several control steps for one decision of a policy, as a wrapper around the control step.

Shapes: N environments, H actions of a chunk, A action size.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from embodichain.lab.gym.envs.base_env import BaseEnv, StepResult, finite_observation

_AT_THE_END = ("success", "fail", "elapsed_steps")


@torch.no_grad()
def step_chunk(
    env: BaseEnv, action: Tensor | np.ndarray | Mapping[str, Tensor], draws_each_step: bool = False
) -> StepResult:
    """Advance every environment by H control steps, or to the end of its episode.

    An environment that ends its episode within the chunk stays in its last state until the resets at the end of the
    chunk.

    Args:
        action: [N, H, A], or by name as the action manager calls it; clipped to the action space.
        draws_each_step: whether cameras render at every control step, else once at the end of a chunk; terms that read
            images within the chunk then read earlier ones.

    Returns:
        ``(obs, reward [N, H] float32, terminated [N] bool, truncated [N] bool, info)``: as of ``BaseEnv.step``, with
        ``info["executed"]`` [N, H] bool, the control steps that were made. At the others, ``reward``,
        ``info["rewards"]`` and ``info["metrics"]`` ([N, H] by name) are 0; ``success``, ``fail`` and ``elapsed_steps``
        [N] are of the last executed one, and ``success_once`` [N] says whether one of them was a success. A chunk of
        one is bit-identical to a step.
    """
    action = env.take_action(action)
    if action.dim() != 3:
        raise ValueError(f"step_chunk takes actions [N, H, A], got shape {list(action.shape)}")
    length = action.shape[1]
    chunk = _Record(env.num_envs, length, env.device)
    is_last = False
    try:
        for h, own in enumerate(action.unbind(1)):
            is_last = h == length - 1
            env.sim.hold_images(not (is_last or draws_each_step))
            now = torch.where(chunk.alive[:, None], own, env.last_action)
            obs, reward, terminated, truncated, info = env.advance(now)
            reward, done = chunk.add(h, reward, terminated, truncated, info)
            env._record(now, reward, done, info | {"final_obs": obs})
            ended = done.nonzero().squeeze(1)
            if len(ended):
                env.pause(ended)
            if not len(env.stepping_ids):
                break
            if not is_last:
                env._begin_step(obs)
    finally:
        env.sim.hold_images(False)
        env.resume()
    if env.sim.sensors and not (is_last or draws_each_step):  # the images are from before the chunk
        env._rewind_observation()
        obs = env._observe(chunk.executed[:, h])
    info, done = chunk.info(), ~chunk.alive
    info["final_obs"] = obs = finite_observation(obs) if "diverged" in info else obs
    obs = env.begin_episodes(obs, done)
    env.write_rollout(chunk.reward, done, chunk.terminated, chunk.truncated, chunk.executed)
    return obs, chunk.reward, chunk.terminated, chunk.truncated, info


class _Record:
    """Collects the control steps of a chunk, of each environment up to the end of its episode."""

    def __init__(self, num_envs: int, length: int, device: torch.device) -> None:
        self.alive = torch.ones(num_envs, dtype=torch.bool, device=device)  # no episode end in the chunk yet
        self.reward = torch.zeros(num_envs, length, device=device)  # 0 where not executed
        self.executed = torch.zeros(num_envs, length, dtype=torch.bool, device=device)
        self.terminated = torch.zeros_like(self.alive)  # [N], how episodes ended in the chunk
        self.truncated = torch.zeros_like(self.alive)
        self._succeeded = torch.zeros_like(self.alive)
        self._columns: dict[str, dict[str, Tensor]] = {"rewards": {}, "metrics": {}}  # [N, H] by name
        self._info: dict[str, Any] = {}

    def add(
        self, step: int, reward: Tensor, terminated: Tensor, truncated: Tensor, info: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        """Add control step number ``step``, before any reset; return its reward and ended episodes, [N] each."""
        alive = self.alive
        reward, terminated, truncated = reward.masked_fill(~alive, 0.0), terminated & alive, truncated & alive
        self.reward[:, step], self.executed[:, step] = reward, alive
        self.terminated, self.truncated = self.terminated | terminated, self.truncated | truncated
        for kind, columns in self._columns.items():
            for name, value in info[kind].items():
                if name not in columns:
                    columns[name] = torch.zeros_like(self.executed, dtype=value.dtype)
                columns[name][:, step] = value.masked_fill(~alive, 0)
        self._succeeded = self._succeeded | (info["success"] & alive)
        before, self._info = self._info, dict(info)
        if before:
            self._info |= {name: torch.where(alive, info[name], before[name]) for name in _AT_THE_END}
        if "diverged" in info or "diverged" in before:
            none = torch.zeros_like(alive)
            self._info["diverged"] = before.get("diverged", none) | (info.get("diverged", none) & alive)
        done = terminated | truncated
        self.alive = alive & ~done
        return reward, done

    def info(self) -> dict[str, Any]:
        """Return ``info`` of each episode's last step, with ``executed``; ``rewards`` and ``metrics`` are [N, H]."""
        return self._info | self._columns | {"executed": self.executed, "success_once": self._succeeded}
