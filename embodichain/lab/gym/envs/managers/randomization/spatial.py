"""Random poses and joint positions. Shapes: N environments, n those concerned, J joints.

Ranges are ``[lowest, highest]``; positions in m, rotations in degrees about the fixed x, then y, then z axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.cfg import Range, Range3, SceneEntityCfg
from embodichain.lab.sim.math import matrix_from_euler, pose_from_pos_matrix, quat_from_euler, quat_mul
from embodichain.utils import ConfigError

if TYPE_CHECKING:
    from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv

__all__ = ["randomize_rigid_object_pose", "randomize_robot_qpos", "randomize_target_pose"]


def randomize_rigid_object_pose(
    env: EmbodiedEnv,
    env_ids: Tensor,
    entity_cfg: SceneEntityCfg,
    position_range: Range3 | None = None,
    rotation_range: Range3 | None = None,
    relative_position: bool = True,
    relative_rotation: bool = True,
) -> None:
    """Put a rigid body at a random pose and at rest.

    Args:
        env: the environment.
        env_ids: [n].
        entity_cfg: the body.
        position_range: of x, y, z, or None for the configured position.
        rotation_range: of the Euler angles, or None for the configured orientation.
        relative_position: the range is around the configured position, else in the environment's frame.
        relative_rotation: the rotation is applied after the configured one (about the fixed axes), else instead.
    """
    body = env.sim.get_rigid_object(entity_cfg.uid)
    if position_range is None:
        pos = body.initial_pos.expand(len(env_ids), 3)
    else:
        pos = _draw(env, env_ids, position_range, 3)
        if relative_position:
            pos = pos + body.initial_pos
    quat = body.initial_quat.expand(len(env_ids), 4)
    if rotation_range is not None:
        turn = quat_from_euler(_draw(env, env_ids, rotation_range, 3) * (math.pi / 180))
        quat = quat_mul(turn, quat) if relative_rotation else turn
    body.set_local_pose(torch.cat((pos, quat), dim=1), env_ids)
    body.clear_dynamics(env_ids)


def randomize_target_pose(
    env: EmbodiedEnv,
    env_ids: Tensor,
    position_range: Range3,
    rotation_range: Range3 | None = None,
    relative_position: bool = False,
    reference_entity_cfg: SceneEntityCfg | None = None,
    store_key: str = "target_pose",
) -> None:
    """Draw a target pose and store it as ``env.<store_key>``, [N, 4, 4].

    Args:
        env: the environment.
        env_ids: [n].
        position_range: of x, y, z.
        rotation_range: of the Euler angles, or None for no rotation.
        relative_position: the range is around the reference body's present position, else in the environment's frame.
        reference_entity_cfg: that body.
        store_key: name of the environment's attribute.
    """
    pos = _draw(env, env_ids, position_range, 3)
    if relative_position:
        if reference_entity_cfg is None:
            raise ConfigError("randomize_target_pose: relative_position needs reference_entity_cfg")
        pos = pos + env.sim.get_rigid_object(reference_entity_cfg.uid).pos[env_ids]
    rotation = None
    if rotation_range is not None:
        rotation = matrix_from_euler(_draw(env, env_ids, rotation_range, 3) * (math.pi / 180))
    if not hasattr(env, store_key):
        setattr(env, store_key, torch.eye(4, device=env.device).repeat(env.num_envs, 1, 1))
    # A new tensor, so that what was read before stays what it was.
    poses: Tensor = getattr(env, store_key)
    setattr(env, store_key, poses.index_copy(0, env_ids, pose_from_pos_matrix(pos, rotation)))


def randomize_robot_qpos(
    env: EmbodiedEnv,
    env_ids: Tensor,
    qpos_range: Range,
    joint_ids: Sequence[int] | None = None,
    relative_qpos: bool = True,
) -> None:
    """Put the robot's joints at random positions within their limits, drives' targets included, and at rest.

    Args:
        env: the environment.
        env_ids: [n].
        qpos_range: ``[lowest, highest]`` of each joint, rad or m.
        joint_ids: which joints; None: all.
        relative_qpos: the range is around the configured initial position.
    """
    robot = env.robot
    ids = list(range(robot.dof)) if joint_ids is None else list(joint_ids)
    qpos = _draw(env, env_ids, qpos_range, len(ids))
    if relative_qpos:
        qpos = qpos + robot.body_data.default_qpos[0, ids]
    limits = robot.body_data.qpos_limits[0, ids]
    robot.set_qpos(torch.clamp(qpos, limits[:, 0], limits[:, 1]), ids, env_ids, target=False)
    robot.set_qvel(torch.zeros_like(qpos), ids, env_ids)


def _draw(env: EmbodiedEnv, env_ids: Tensor, bounds: Range, size: int) -> Tensor:
    low, high = _bounds(tuple(map(tuple, bounds)), env.device)
    return env.random.uniform(env_ids, low, high, size)


@lru_cache
def _bounds(bounds: tuple[tuple[float, ...], ...], device: torch.device) -> tuple[Tensor, Tensor]:
    low, high = torch.tensor(bounds, dtype=torch.float32, device=device)
    return low, high
