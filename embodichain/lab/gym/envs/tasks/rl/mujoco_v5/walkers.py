"""Gymnasium's ant and humanoids. Shapes: N environments, n in ``env_ids``, nq and nv coordinates."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.config.env_config import TaskDefaults
from embodichain.lab.gym.envs.managers.cfg import Range1
from embodichain.lab.gym.envs.tasks.rl.mujoco_v5.v5_env import ForwardEnv, V5Env, normal_noise, v5_defaults
from embodichain.lab.gym.registry import register_env
from embodichain.lab.sim.objects import cached_per_state


@register_env("AntV5RL", 1000, override=True, default_cfg=TaskDefaults("AntV5RL"))
class AntEnv(ForwardEnv):
    """Gymnasium's Ant-v5: walk along x on four legs.

    Observations [105]: positions without x and y, velocities, and the contact forces on each body within 1. Rewards:
    velocity, 1 for each step in which the torso's height is right, less costs of actions and contacts. A torso too low
    or too high ends the episode.
    """

    config_defaults = v5_defaults("ant.xml", 5)
    derived_fields = ("xpos", "cfrc_ext")
    ctrl_cost_weight = 0.5
    reset_noise_scale = 0.1
    contact_cost_weight: float = 5e-4
    healthy_reward: float = 1.0
    healthy_z_range: Range1 = (0.2, 1.0)
    """Of the torso's height, m."""
    contact_force_range: Range1 = (-1.0, 1.0)
    """Contact forces are clipped to it, N and Nm."""

    @override
    def position(self) -> Tensor:
        return self.derived["xpos"][:, 1, :2]

    @override
    def observe(self) -> Tensor:
        return torch.cat((self.qpos[:, 2:], self.qvel, self._contact_forces()[:, 1:].flatten(1)), dim=1)

    @override
    @cached_per_state
    def is_healthy(self) -> Tensor:
        low, high = self.healthy_z_range
        height = self.qpos[:, 2]
        is_finite = torch.cat((self.qpos, self.qvel), dim=1).isfinite().all(dim=1)
        return is_finite & (height >= low) & (height <= high)

    @override
    def reward_terms(self, action: Tensor) -> dict[str, Tensor]:
        return super().reward_terms(action) | {
            "contact": -self.contact_cost_weight * self._contact_forces().square().sum(dim=(1, 2)),
            "survive": self.healthy_reward * self.is_healthy().double(),
        }

    @override
    def initial_state(self, env_ids: Tensor) -> tuple[Tensor, Tensor]:
        qpos, qvel = self.file_state(env_ids)
        return qpos + self.uniform_noise(env_ids, qpos), qvel + normal_noise(self, env_ids, qvel)

    def _contact_forces(self) -> Tensor:
        return self.derived["cfrc_ext"].clamp(*self.contact_force_range)


@register_env("HumanoidV5RL", 1000, override=True, default_cfg=TaskDefaults("HumanoidV5RL"))
class HumanoidEnv(ForwardEnv):
    """Gymnasium's Humanoid-v5: walk along x on two legs.

    Observations [348]: positions without x and y, velocities, and of each body inertia, velocity, actuators' forces and
    contact forces. Rewards: velocity of the centre of mass, 5 for each step in which the torso's height is right, less
    costs of actions and contacts. A torso too low or too high ends the episode.
    """

    config_defaults = v5_defaults("humanoid.xml", 5)
    derived_fields = ("xipos", "cinert", "cvel", "qfrc_actuator", "cfrc_ext")
    forward_reward_weight = 1.25
    ctrl_cost_weight = 0.1
    reset_noise_scale = 1e-2
    contact_cost_weight: float = 5e-7
    contact_cost_range: Range1 = (-math.inf, 10.0)
    healthy_reward: float = 5.0
    healthy_z_range: Range1 = (1.0, 2.0)
    """Of the torso's height, m."""

    @override
    def position(self) -> Tensor:
        mass = torch.tensor(self.sim.model.body_mass, device=self.device)
        return (mass[:, None] * self.derived["xipos"]).sum(dim=1)[:, :2] / mass.sum()

    @override
    def observe(self) -> Tensor:
        return humanoid_observation(self)

    @override
    @cached_per_state
    def is_healthy(self) -> Tensor:
        low, high = self.healthy_z_range
        return (self.qpos[:, 2] > low) & (self.qpos[:, 2] < high)

    @override
    def reward_terms(self, action: Tensor) -> dict[str, Tensor]:
        return super().reward_terms(action) | {
            "contact": -contact_cost(self, self.contact_cost_weight, self.contact_cost_range),
            "survive": self.healthy_reward * self.is_healthy().double(),
        }


@register_env("HumanoidStandupV5RL", 1000, override=True, default_cfg=TaskDefaults("HumanoidStandupV5RL"))
class HumanoidStandupEnv(V5Env):
    """Gymnasium's HumanoidStandup-v5: stand up from lying.

    Observations [348]: as Humanoid-v5. Rewards: 1, and the torso's height divided by MuJoCo's timestep, less costs of
    actions and impacts.
    """

    config_defaults = v5_defaults("humanoidstandup.xml", 5)
    derived_fields = ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")
    reset_noise_scale = 1e-2
    uph_cost_weight: float = 1.0
    """Of the torso's height divided by the timestep; Gymnasium 1.4 has the argument, and does not use it."""
    ctrl_cost_weight: float = 0.1
    impact_cost_weight: float = 0.5e-6
    impact_cost_range: Range1 = (-math.inf, 10.0)

    @override
    def observe(self) -> Tensor:
        return humanoid_observation(self)

    @override
    def reward_terms(self, action: Tensor) -> dict[str, Tensor]:
        return {
            "linup": self.uph_cost_weight * self.qpos[:, 2] / self.sim.model.opt.timestep,
            "quadctrl": -self.ctrl_cost_weight * action.square().sum(dim=1),
            "impact": -contact_cost(self, self.impact_cost_weight, self.impact_cost_range),
            "survive": torch.ones_like(self.qpos[:, 2]),
        }


def humanoid_observation(env: HumanoidEnv | HumanoidStandupEnv) -> Tensor:
    """Return the humanoids' observation, [N, 348], without the world body and the actuators' forces on the root."""
    inertia, velocity, forces = (env.derived[name][:, 1:].flatten(1) for name in ("cinert", "cvel", "cfrc_ext"))
    actuators = env.derived["qfrc_actuator"][:, 6:]
    return torch.cat((env.qpos[:, 2:], env.qvel, inertia, velocity, actuators, forces), dim=1)


def contact_cost(env: HumanoidEnv | HumanoidStandupEnv, weight: float, interval: tuple[float, float]) -> Tensor:
    """Return ``weight`` times the sum of the squared contact forces, within an interval, [N]."""
    return (weight * env.derived["cfrc_ext"].square().sum(dim=(1, 2))).clamp(*interval)
