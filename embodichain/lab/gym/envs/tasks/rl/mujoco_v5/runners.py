"""Gymnasium's runners and its swimmer. Shapes: N environments, n in ``env_ids``, nq and nv coordinates."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.config.env_config import TaskDefaults
from embodichain.lab.gym.envs.managers.cfg import Range1
from embodichain.lab.gym.envs.tasks.rl.mujoco_v5.v5_env import ForwardEnv, normal_noise, v5_defaults
from embodichain.lab.gym.registry import register_env
from embodichain.lab.sim.objects import cached_per_state

_FASTEST = 10.0  # coordinate velocities are clipped to it in observations, m/s and rad/s


@register_env("HalfCheetahV5RL", 1000, override=True, default_cfg=TaskDefaults("HalfCheetahV5RL"))
class HalfCheetahEnv(ForwardEnv):
    """Gymnasium's HalfCheetah-v5: run forwards on two legs in a vertical plane.

    Observations [17]: positions without x, and velocities. Rewards: velocity, less 0.1 times the squared actions.
    """

    config_defaults = v5_defaults("half_cheetah.xml", 5)
    ctrl_cost_weight = 0.1
    reset_noise_scale = 0.1

    @override
    def observe(self) -> Tensor:
        return torch.cat((self.qpos[:, 1:], self.qvel), dim=1)

    @override
    def initial_state(self, env_ids: Tensor) -> tuple[Tensor, Tensor]:
        qpos, qvel = self.file_state(env_ids)
        return qpos + self.uniform_noise(env_ids, qpos), qvel + normal_noise(self, env_ids, qvel)


@register_env("HopperV5RL", 1000, override=True, default_cfg=TaskDefaults("HopperV5RL"))
class HopperEnv(ForwardEnv):
    """Gymnasium's Hopper-v5: hop forwards on one leg in a vertical plane.

    Observations [11]: positions without x, and velocities within 10. Rewards: velocity, 1 for each step in which the
    torso is high and upright enough, and a small cost of the actions. Falling ends the episode.
    """

    config_defaults = v5_defaults("hopper.xml", 4)
    reset_noise_scale = 5e-3
    healthy_reward: float = 1.0
    healthy_state_range: Range1 = (-100.0, 100.0)
    """Of all coordinates but x and height, and of all velocities."""
    healthy_z_range: Range1 = (0.7, math.inf)
    """Of the torso's height, m."""
    healthy_angle_range: Range1 = (-0.2, 0.2)
    """Of its lean, rad."""

    @override
    def observe(self) -> Tensor:
        return torch.cat((self.qpos[:, 1:], self.qvel.clamp(-_FASTEST, _FASTEST)), dim=1)

    @override
    @cached_per_state
    def is_healthy(self) -> Tensor:
        qpos, qvel = self.qpos, self.qvel
        upright = _within(qpos[:, 1], self.healthy_z_range) & _within(qpos[:, 2], self.healthy_angle_range)
        state = torch.cat((qpos[:, 2:], qvel), dim=1)
        return upright & _within(state, self.healthy_state_range).all(dim=1)

    @override
    def reward_terms(self, action: Tensor) -> dict[str, Tensor]:
        return super().reward_terms(action) | {"survive": self.healthy_reward * self.is_healthy().double()}


@register_env("Walker2dV5RL", 1000, override=True, default_cfg=TaskDefaults("Walker2dV5RL"))
class Walker2dEnv(ForwardEnv):
    """Gymnasium's Walker2d-v5: walk forwards on two legs in a vertical plane.

    Observations [17]: positions without x, and velocities within 10. Rewards: velocity, 1 for each step in which the
    torso is high and upright enough, and a small cost of the actions. Falling ends the episode.
    """

    config_defaults = v5_defaults("walker2d_v5.xml", 4)
    reset_noise_scale = 5e-3
    healthy_reward: float = 1.0
    healthy_z_range: Range1 = (0.8, 2.0)
    """Of the torso's height, m."""
    healthy_angle_range: Range1 = (-1.0, 1.0)
    """Of its lean, rad."""

    @override
    def observe(self) -> Tensor:
        return torch.cat((self.qpos[:, 1:], self.qvel.clamp(-_FASTEST, _FASTEST)), dim=1)

    @override
    @cached_per_state
    def is_healthy(self) -> Tensor:
        return _within(self.qpos[:, 1], self.healthy_z_range) & _within(self.qpos[:, 2], self.healthy_angle_range)

    @override
    def reward_terms(self, action: Tensor) -> dict[str, Tensor]:
        return super().reward_terms(action) | {"survive": self.healthy_reward * self.is_healthy().double()}


@register_env("SwimmerV5RL", 1000, override=True, default_cfg=TaskDefaults("SwimmerV5RL"))
class SwimmerEnv(ForwardEnv):
    """Gymnasium's Swimmer-v5: swim forwards with three links in a viscous plane.

    Observations [8]: positions without x and y, and velocities. Rewards: velocity, less a small cost of the actions.
    """

    config_defaults = v5_defaults("swimmer.xml", 4)
    ctrl_cost_weight = 1e-4
    reset_noise_scale = 0.1

    @override
    def position(self) -> Tensor:
        return self.qpos[:, :2]

    @override
    def observe(self) -> Tensor:
        return torch.cat((self.qpos[:, 2:], self.qvel), dim=1)


def _within(values: Tensor, interval: tuple[float, float]) -> Tensor:
    """Return which values lie inside an interval without its ends; NaN does not."""
    return (values > interval[0]) & (values < interval[1])
