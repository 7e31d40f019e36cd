"""Observation terms: ``func(env, **params)``, or ``func(env, data, **params)`` for terms that modify an entry.

Shapes: N environments, J joints.
"""

from __future__ import annotations

import builtins
from typing import Literal

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
from embodichain.lab.gym.envs.managers.cfg import (
    FunctorCfg,
    Interval,
    JointedEntity,
    JointIds,
    RigidEntity,
    SceneEntityCfg,
)
from embodichain.lab.gym.envs.managers.targets import offset_to_target, target_pose
from embodichain.lab.gym.envs.managers.term_env import TermEnv
from embodichain.lab.sim.math import row_from_pose
from embodichain.lab.sim.objects import Marker

__all__ = [
    "compute_exteroception",
    "compute_semantic_mask",
    "get_articulation_joint_drive",
    "get_object_body_scale",
    "get_object_pose",
    "get_object_uid",
    "get_rigid_object_physics_attributes",
    "get_rigid_object_pose",
    "get_rigid_object_velocity",
    "get_robot_eef_pose",
    "get_sensor_intrinsics",
    "get_sensor_pose_in_robot_frame",
    "normalize_robot_joint_data",
    "offset_from_eef",
    "offset_from_target",
    "target_position",
]


def get_rigid_object_pose(env: TermEnv, entity_cfg: RigidEntity, to_matrix: bool = True) -> Tensor:
    """Return a rigid body's pose in the environment's frame.

    Args:
        entity_cfg: the body.
        to_matrix: [N, 4, 4], else [N, 7] (position m, quaternion wxyz).
    """
    return env.sim.get_rigid_object(entity_cfg.uid).get_local_pose(to_matrix)


def get_object_pose(env: TermEnv, entity_cfg: SceneEntityCfg, to_matrix: bool = True) -> Tensor:
    """Return the pose of a rigid body, or of the base of an articulation or robot, in the environment's frame.

    Args:
        entity_cfg: the entity.
        to_matrix: [N, 4, 4], else [N, 7] (position m, quaternion wxyz).
    """
    asset = env.sim.get_asset(entity_cfg.uid)
    assert not isinstance(asset, Marker)
    return asset.get_local_pose(to_matrix)


def get_rigid_object_velocity(env: TermEnv, entity_cfg: RigidEntity) -> Tensor:
    """Return a rigid body's linear (m/s) and angular (rad/s) velocity in the environment's frame, [N, 6].

    Args:
        entity_cfg: the body.
    """
    return env.sim.get_rigid_object(entity_cfg.uid).get_velocity()


def get_robot_eef_pose(
    env: TermEnv, part_name: str = "arm", to_matrix: bool = True, position_only: bool = False
) -> Tensor:
    """Return the pose of a control part's tool centre point in the environment's frame.

    Args:
        part_name: the control part.
        to_matrix: [N, 4, 4], else [N, 7] (position m, quaternion wxyz).
        position_only: the position alone, [N, 3], m.
    """
    pose = env.robot.get_eef_pose(part_name)
    if position_only:
        return pose[:, :3, 3]
    return pose if to_matrix else row_from_pose(pose)


def target_position(env: TermEnv, target_pose_key: str = "goal_pose") -> Tensor:
    """Return the position of a target pose, [N, 3], m.

    Args:
        target_pose_key: under which the target pose is stored.
    """
    return target_pose(env, target_pose_key)[:, :3, 3]


def offset_from_eef(env: TermEnv, entity_cfg: RigidEntity, part_name: str = "arm") -> Tensor:
    """Return the vector from a control part's tool centre point to a rigid body, in the environment's frame, [N, 3], m.

    Args:
        entity_cfg: the body.
        part_name: the control part.
    """
    return env.sim.get_rigid_object(entity_cfg.uid).pos - env.robot.get_eef_pose(part_name)[:, :3, 3]


def offset_from_target(env: TermEnv, entity_cfg: RigidEntity, target_pose_key: str = "goal_pose") -> Tensor:
    """Return the vector from a target pose to a rigid body, in the environment's frame, [N, 3], m.

    Args:
        entity_cfg: the body.
        target_pose_key: under which the target pose is stored.
    """
    return offset_to_target(env, entity_cfg.uid, target_pose_key)


class normalize_robot_joint_data(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Map joint positions or velocities [N, J] from their limits to ``range``.

    Joints without limits and joints not named stay as they are.

    Args:
        joint_ids: robot joints; None: all.
        limit: kind of limit, of positions (rad, m) or velocities (rad/s, m/s): the drives' ``max_velocity`` either way.
        range: new values of the lower and the upper limit.
    """

    is_stateful = False

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        if cfg.params.get("limit", "qpos_limits") == "qpos_limits":
            low, high = env.robot.body_data.qpos_limits[0].unbind(dim=1)
        else:
            high = env.robot.body_data.qvel_limits[0]
            low = -high
        joint_ids = cfg.params.get("joint_ids")
        first, last = cfg.params.get("range", (-1.0, 1.0))
        chosen = torch.zeros(low.shape, dtype=torch.bool, device=low.device)
        chosen[list(builtins.range(env.robot.dof) if joint_ids is None else joint_ids)] = True
        chosen &= torch.isfinite(low) & torch.isfinite(high)
        self._scale = torch.where(chosen, (last - first) / (high - low), torch.ones_like(low))
        offset = (first * high - last * low) / (high - low)
        self._offset = torch.where(chosen, offset, torch.zeros_like(low))

    @override
    def __call__(
        self,
        env: TermEnv,
        data: Tensor,
        joint_ids: JointIds | None = None,
        limit: Literal["qpos_limits", "qvel_limits"] = "qpos_limits",
        range: Interval = (-1.0, 1.0),
    ) -> Tensor:
        return torch.addcmul(self._offset, data, self._scale)


def get_object_body_scale(env: TermEnv, entity_cfg: RigidEntity) -> Tensor:
    """Return the size of a rigid body as a factor of the configured one along its axes, [N, 3].

    Args:
        entity_cfg: the body.
    """
    return env.sim.get_rigid_object(entity_cfg.uid).physics.get_body_scale()


def get_object_uid(env: TermEnv, entity_cfg: SceneEntityCfg) -> Tensor:
    """Return an entity's number in the scene: [N] int32 of a rigid body, [N, links] of an articulation or robot.

    Args:
        entity_cfg: the entity.
    """
    asset = env.sim.get_asset(entity_cfg.uid)
    assert not isinstance(asset, Marker)
    return asset.get_user_ids()


def get_rigid_object_physics_attributes(env: TermEnv, entity_cfg: RigidEntity) -> dict[str, Tensor]:
    """Return the physical attributes of a rigid body, as a group of entries.

    ``mass`` [N, 1] kg, ``friction`` [N, 1] (sliding coefficient), ``damping`` [N, 1] (decay of the linear velocity,
    1/s) and ``inertia`` [N, 3] (about the principal axes, kg m^2) of each environment.

    Args:
        entity_cfg: the body.
    """
    physics = env.sim.get_rigid_object(entity_cfg.uid).physics
    return {
        "mass": physics.get_mass(),
        "friction": physics.get_friction(),
        "damping": physics.get_damping(),
        "inertia": physics.get_inertia(),
    }


def get_articulation_joint_drive(env: TermEnv, entity_cfg: JointedEntity) -> dict[str, Tensor]:
    """Return the drives of an articulation or robot, as a group of entries, [N, J] each.

    ``stiffness`` (N/m or Nm/rad), ``damping`` (N s/m or Nm s/rad), ``max_effort`` (N or Nm), ``max_velocity`` (m/s or
    rad/s), ``friction`` (N or Nm) and ``armature`` (kg or kg m^2) of each environment; a missing limit is 0.

    Args:
        entity_cfg: the articulation or robot.
    """
    articulation = env.sim.get_articulation_or_robot(entity_cfg.uid)
    data = articulation.body_data
    limits = {"max_effort": _finite(data.qf_limits), "max_velocity": _finite(data.qvel_limits)}
    return articulation.drives.read() | limits


def _finite(limits: Tensor) -> Tensor:
    return torch.where(torch.isfinite(limits), limits, torch.zeros_like(limits))
