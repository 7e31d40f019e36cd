"""Observation terms: ``func(env, **params)``, or ``func(env, data, **params)`` for those that modify an entry.

Shapes: N environments, J joints.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers.base import Functor
from embodichain.lab.gym.envs.managers.camera_observations import (
    compute_exteroception,
    compute_semantic_mask,
    get_sensor_intrinsics,
    get_sensor_pose_in_robot_frame,
)
from embodichain.lab.gym.envs.managers.cfg import FunctorCfg, SceneEntityCfg
from embodichain.lab.gym.envs.managers.targets import target_pos
from embodichain.lab.sim.math import quat_from_matrix

if TYPE_CHECKING:
    from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv

__all__ = [
    "compute_exteroception",
    "compute_semantic_mask",
    "get_object_pose",
    "get_rigid_object_pose",
    "get_rigid_object_velocity",
    "get_robot_eef_pose",
    "get_sensor_intrinsics",
    "get_sensor_pose_in_robot_frame",
    "normalize_robot_joint_data",
    "target_position",
]


def get_rigid_object_pose(env: EmbodiedEnv, entity_cfg: SceneEntityCfg, to_matrix: bool = True) -> Tensor:
    """Return a rigid body's pose in the environment's frame: [N, 4, 4], or [N, 7] (position m, quaternion wxyz)."""
    return env.sim.get_rigid_object(entity_cfg.uid).get_local_pose(to_matrix)


get_object_pose = get_rigid_object_pose


def get_rigid_object_velocity(env: EmbodiedEnv, entity_cfg: SceneEntityCfg) -> Tensor:
    """Return a rigid body's linear (m/s) and angular (rad/s) velocity in the environment's frame, [N, 6]."""
    return env.sim.get_rigid_object(entity_cfg.uid).get_velocity()


def get_robot_eef_pose(env: EmbodiedEnv, part_name: str = "arm", to_matrix: bool = True) -> Tensor:
    """Return the pose of a control part's tool centre point: [N, 4, 4], or [N, 7] (position m, quaternion wxyz)."""
    pose = env.robot.get_eef_pose(part_name)
    return pose if to_matrix else torch.cat((pose[:, :3, 3], quat_from_matrix(pose[:, :3, :3])), dim=1)


def target_position(env: EmbodiedEnv, target_pose_key: str = "goal_pose") -> Tensor:
    """Return the position of a target pose stored under a key, [N, 3], m."""
    return target_pos(env, target_pose_key)


class normalize_robot_joint_data(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Map joint positions from their limits to [-1, 1]; joints without limits and joints not named stay as they are.

    Args:
        joint_ids: which of the robot's joints; None: all.
    """

    def __init__(self, cfg: FunctorCfg, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        low, high = env.robot.body_data.qpos_limits[0].unbind(dim=1)
        joint_ids = cfg.params.get("joint_ids")
        chosen = torch.zeros(low.shape, dtype=torch.bool, device=low.device)
        chosen[list(range(env.robot.dof)) if joint_ids is None else joint_ids] = True
        chosen &= torch.isfinite(low) & torch.isfinite(high)
        self._scale = torch.where(chosen, 2.0 / (high - low), torch.ones_like(low))
        self._offset = torch.where(chosen, -(high + low) / (high - low), torch.zeros_like(low))

    @override
    def __call__(self, env: EmbodiedEnv, data: Tensor, joint_ids: Sequence[int] | None = None) -> Tensor:
        return torch.addcmul(self._offset, data, self._scale)
