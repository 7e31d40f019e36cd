"""Gymnasium's pendulums on a cart. Shapes: N environments, n in ``env_ids``, nq and nv coordinates."""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.config.env_config import TaskDefaults
from embodichain.lab.gym.envs.tasks.rl.mujoco_v5.v5_env import V5Env, normal_noise, v5_defaults
from embodichain.lab.gym.registry import register_env
from embodichain.lab.sim.objects import cached_per_state


@register_env("InvertedPendulumV5RL", 1000, override=True, default_cfg=TaskDefaults("InvertedPendulumV5RL"))
class InvertedPendulumEnv(V5Env):
    """Gymnasium's InvertedPendulum-v5: hold a pole upright on a cart.

    Observations [4]: positions and velocities of cart and pole. Rewards: 1 for each step. A lean of more than 0.2 rad
    ends the episode.
    """

    config_defaults = v5_defaults("inverted_pendulum.xml", 2)
    reset_noise_scale = 0.01

    @override
    def observe(self) -> Tensor:
        return torch.cat((self.qpos, self.qvel), dim=1)

    @override
    @cached_per_state
    def is_healthy(self) -> Tensor:
        return self.observe().isfinite().all(dim=1) & (self.qpos[:, 1].abs() <= 0.2)

    @override
    def reward_terms(self, action: Tensor) -> dict[str, Tensor]:
        return {"survive": self.is_healthy().double()}


@register_env("InvertedDoublePendulumV5RL", 1000, override=True, default_cfg=TaskDefaults("InvertedDoublePendulumV5RL"))
class InvertedDoublePendulumEnv(V5Env):
    """Gymnasium's InvertedDoublePendulum-v5: hold two poles, one on the other, upright on a cart.

    Observations [9]: the cart's position, sines and cosines of the angles, velocities within 10, and the force of the
    cart's limits within 10. Rewards: 10 for each step, less the tip's distance and costs of the poles' velocities. A
    tip at 1 m or below ends the episode.
    """

    config_defaults = v5_defaults("inverted_double_pendulum.xml", 5)
    derived_fields = ("site_xpos", "qfrc_constraint")
    reset_noise_scale = 0.1
    healthy_reward: float = 10.0

    @override
    def observe(self) -> Tensor:
        angles, limit = self.qpos[:, 1:], self.derived["qfrc_constraint"][:, :1]
        parts = (self.qpos[:, :1], angles.sin(), angles.cos(), self.qvel.clamp(-10.0, 10.0), limit.clamp(-10.0, 10.0))
        return torch.cat(parts, dim=1)

    @override
    def is_healthy(self) -> Tensor:
        return self.derived["site_xpos"][:, 0, 2] > 1.0

    @override
    def reward_terms(self, action: Tensor) -> dict[str, Tensor]:
        x, _, z = self.derived["site_xpos"][:, 0].unbind(1)
        _, first, second = self.qvel.unbind(1)
        return {
            "survive": self.healthy_reward * self.is_healthy().double(),
            "distance": -(0.01 * x.square() + (z - 2.0).square()),
            "velocity": -(1e-3 * first.square() + 5e-3 * second.square()),
        }

    @override
    def initial_state(self, env_ids: Tensor) -> tuple[Tensor, Tensor]:
        qpos, qvel = self.file_state(env_ids)
        return qpos + self.uniform_noise(env_ids, qpos), qvel + normal_noise(self, env_ids, qvel)
