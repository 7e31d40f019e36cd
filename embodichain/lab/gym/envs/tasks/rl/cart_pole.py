"""Hold a pole upright on a cart. Shapes: N environments."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import PositiveFloat
from tensordict import TensorDict
from torch import Tensor

from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl.defaults import default_cfg
from embodichain.lab.gym.registry import register_env


@register_env("CartPoleRL", max_episode_steps=500, override=True, default_cfg=default_cfg("basic/cart_pole"))
class CartPoleEnv(EmbodiedEnv):
    """The pole, control part ``hand``, is to stay upright until the time limit.

    Success means that the pole is upright at the moment; it does not end the episode, so that an episode succeeds when
    the pole is still upright at its last step. Falling beyond ``fail_angle`` ends it.
    """

    success_terminates = False
    success_angle: PositiveFloat = 0.1
    """Largest lean that counts as upright, rad."""
    fail_angle: PositiveFloat = 0.5
    """Lean at which the pole has fallen, rad."""

    def compute_task_state(self, **kwargs: Any) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return success, failure, and the metric ``pole_angle`` (rad)."""
        angle = self.robot.get_qpos("hand")[:, 0].abs()
        return angle < self.success_angle, angle > self.fail_angle, {"pole_angle": angle}

    def get_reward(self, obs: TensorDict, action: Tensor, info: dict[str, Any]) -> Tensor:
        """Return 1 - (angle / fail_angle)^2 for standing, [0, 1], plus the config's terms."""
        reward = super().get_reward(obs, action, info)
        upright = (1.0 - (info["metrics"]["pole_angle"] / self.fail_angle).square()).clamp(min=0.0)
        info["rewards"]["upright"] = upright
        return reward + torch.where(info["fail"], torch.zeros_like(upright), upright)
