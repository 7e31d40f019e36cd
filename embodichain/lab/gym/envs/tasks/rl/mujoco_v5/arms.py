"""Gymnasium's arms. Shapes: N environments, n in ``env_ids``."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.config.env_config import TaskDefaults
from embodichain.lab.gym.envs.tasks.rl.mujoco_v5.v5_env import V5Env, v5_defaults
from embodichain.lab.gym.registry import register_env

_GOAL_RADIUS = 0.2  # m, of the disk that Reacher's goals are drawn from
_NEAREST = 0.17  # m, of Pusher's object to its goal
_TRIES = 32  # draws of the object's place, of which the first that is far enough counts: one in 1e13 has none


class BodyEnv(V5Env):
    """A task about the distances of bodies."""

    derived_fields = ("xpos",)
    reward_dist_weight: float = 1.0

    def place(self, body: str) -> Tensor:
        """Return the world position of a body, [N, 3] float64, m: before the last substep, as Gymnasium reads it."""
        return self.derived["xpos"][:, self.sim.model.body(body).id]


@register_env("ReacherV5RL", 50, override=True, default_cfg=TaskDefaults("ReacherV5RL"))
class ReacherEnv(BodyEnv):
    """Gymnasium's Reacher-v5: bring the fingertip of a planar arm of two joints to a goal.

    Observations [10]: cosines and sines of the angles, the goal, the joints' velocities, and the way to the goal in the
    plane. Rewards: less the distance, and less the squared actions.
    """

    config_defaults = v5_defaults("reacher.xml", 2)
    reset_noise_scale = 0.1
    reward_control_weight: float = 1.0

    @override
    def observe(self) -> Tensor:
        angles, way = self.qpos[:, :2], self._way()[:, :2]
        return torch.cat((angles.cos(), angles.sin(), self.qpos[:, 2:], self.qvel[:, :2], way), dim=1)

    @override
    def reward_terms(self, action: Tensor) -> dict[str, Tensor]:
        return {
            "dist": -self.reward_dist_weight * torch.linalg.vector_norm(self._way(), dim=1),
            "ctrl": -self.reward_control_weight * action.square().sum(dim=1),
        }

    @override
    def initial_state(self, env_ids: Tensor) -> tuple[Tensor, Tensor]:
        qpos, qvel = self.file_state(env_ids)
        arm = (qpos + self.uniform_noise(env_ids, qpos))[:, :2]
        # Uniform on the disk: the area within r grows with r squared.
        radius, turn = self.random.uniform(env_ids, 0.0, 1.0, 2).double().unbind(1)
        radius, turn = _GOAL_RADIUS * radius.sqrt(), 2.0 * math.pi * turn
        goal = torch.stack((radius * turn.cos(), radius * turn.sin()), dim=1)
        speed = qvel[:, :2] + self.random.uniform(env_ids, -0.005, 0.005, 2).double()
        return torch.cat((arm, goal), dim=1), torch.cat((speed, torch.zeros_like(speed)), dim=1)

    def _way(self) -> Tensor:
        return self.place("fingertip") - self.place("target")


@register_env("PusherV5RL", 100, override=True, default_cfg=TaskDefaults("PusherV5RL"))
class PusherEnv(BodyEnv):
    """Gymnasium's Pusher-v5: push a cylinder to a goal with the tip of an arm of seven joints.

    Observations [23]: the arm's positions and velocities, and the positions of tip, cylinder and goal. Rewards: less
    the distances of cylinder and goal, and of tip and cylinder, and less the squared actions.
    """

    config_defaults = v5_defaults("pusher_v5.xml", 5)
    reward_near_weight: float = 0.5
    reward_control_weight: float = 0.1

    @override
    def observe(self) -> Tensor:
        places = [self.place(body) for body in ("tips_arm", "object", "goal")]
        return torch.cat((self.qpos[:, :7], self.qvel[:, :7], *places), dim=1)

    @override
    def reward_terms(self, action: Tensor) -> dict[str, Tensor]:
        tip, cylinder, goal = (self.place(body) for body in ("tips_arm", "object", "goal"))
        return {
            "near": -self.reward_near_weight * torch.linalg.vector_norm(cylinder - tip, dim=1),
            "dist": -self.reward_dist_weight * torch.linalg.vector_norm(cylinder - goal, dim=1),
            "ctrl": -self.reward_control_weight * action.square().sum(dim=1),
        }

    @override
    def initial_state(self, env_ids: Tensor) -> tuple[Tensor, Tensor]:
        qpos, qvel = self.file_state(env_ids)
        goal = torch.zeros(len(env_ids), 2, dtype=torch.float64, device=self.device)
        speed = qvel[:, :-4] + self.random.uniform(env_ids, -0.005, 0.005, qvel.shape[1] - 4).double()
        still = torch.zeros(len(env_ids), 4, dtype=torch.float64, device=self.device)
        return torch.cat((qpos[:, :-4], self._cylinder(env_ids), goal), dim=1), torch.cat((speed, still), dim=1)

    def _cylinder(self, env_ids: Tensor) -> Tensor:
        """Return places of the cylinder, [n, 2] m: uniform in a rectangle, but for the disk about the goal."""
        x = self.random.uniform(env_ids, -0.3, 0.0, _TRIES).double()
        y = self.random.uniform(env_ids, -0.2, 0.2, _TRIES).double()
        is_far = torch.hypot(x, y) > _NEAREST
        first = is_far.byte().argmax(dim=1, keepdim=True)  # of equal ones, the first
        return torch.cat((x.gather(1, first), y.gather(1, first)), dim=1)
