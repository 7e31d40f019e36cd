"""Random poses and joint positions. Shapes: N environments, n in ``env_ids``, J joints.

Ranges are ``[lowest, highest]``; positions in m, rotations in degrees about the fixed x, then y, then z axis.
"""

from collections.abc import Sequence

import torch
from pydantic import PositiveInt
from torch import Tensor

from embodichain.lab.gym.envs.managers import types
from embodichain.lab.gym.envs.managers.base import TermEnv
from embodichain.lab.gym.envs.managers.randomization.physics import draw, draw_pose, named_joints
from embodichain.lab.sim.math import matrix_from_euler, pose_from_pos_matrix, pose_from_row
from embodichain.utils import ConfigError
from embodichain.utils.device import constant

__all__ = [
    "planner_grid_cell_sampler",
    "randomize_articulation_root_pose",
    "randomize_rigid_object_pose",
    "randomize_robot_eef_pose",
    "randomize_robot_qpos",
    "randomize_target_pose",
]


def randomize_rigid_object_pose(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfg: types.RigidEntity,
    position_range: types.Range3 | None = None,
    rotation_range: types.Range3 | None = None,
    relative_position: bool = True,
    relative_rotation: bool = True,
) -> None:
    """Put a rigid body at a random pose and at rest.

    Args:
        position_range: range of x, y, z, or None for the configured position.
        rotation_range: range of the Euler angles, or None for the configured orientation.
        relative_position: the range is around the configured position, else in the environment's frame.
        relative_rotation: the rotation is applied after the configured one (about the fixed axes), else instead.
    """
    body = env.sim.get_rigid_object(entity_cfg.uid)
    initial = torch.cat((body.initial_pos, body.initial_quat))
    pose = draw_pose(env, env_ids, initial, position_range, rotation_range, relative_position, relative_rotation)
    body.set_local_pose(pose, env_ids)
    body.clear_dynamics(env_ids)


def randomize_articulation_root_pose(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfg: types.ArticulationEntity,
    position_range: types.Range3 | None = None,
    rotation_range: types.Range3 | None = None,
    relative_position: bool = True,
    relative_rotation: bool = False,
    physics_update_step: int = -1,
) -> None:
    """Put the base of an articulation at a random pose, with its joints at rest.

    The shapes and sites in its file's world move with it. In a file with loose bodies they and these bodies stay.

    Args:
        entity_cfg: the articulation; a robot cannot be moved so, since its kinematics hold the configured pose.
        position_range: range of x, y, z, m, or None for the configured position.
        rotation_range: range of the Euler angles, degrees, or None for the configured orientation.
        relative_position: the range is around the configured position, else in the environment's frame.
        relative_rotation: the rotation is applied after the configured one (about the fixed axes), else instead.
        physics_update_step: physics substeps that these environments make afterwards; none unless above 0.
    """
    articulation = env.sim.get_articulation(entity_cfg.uid)
    initial = articulation.base.initial
    pose = draw_pose(env, env_ids, initial, position_range, rotation_range, relative_position, relative_rotation)
    articulation.set_local_pose(pose, env_ids)
    articulation.clear_dynamics(env_ids)
    if physics_update_step > 0:
        env.sim.update(physics_update_step, env_ids)


def randomize_target_pose(
    env: TermEnv,
    env_ids: Tensor,
    position_range: types.Range3,
    rotation_range: types.Range3 | None = None,
    relative_position: bool = False,
    reference_entity_cfg: types.RigidEntity | None = None,
    store_key: str = "target_pose",
) -> None:
    """Draw a target pose and store it as ``env.<store_key>``, [N, 4, 4].

    Args:
        position_range: range of x, y, z.
        rotation_range: range of the Euler angles, or None for no rotation.
        relative_position: the range is around the reference body's present position, else in the environment's frame.
        reference_entity_cfg: reference body.
        store_key: name of the environment's attribute.
    """
    pos = draw(env, env_ids, position_range, 3)
    if relative_position:
        if reference_entity_cfg is None:
            raise ConfigError("randomize_target_pose: relative_position needs reference_entity_cfg")
        pos = pos + env.sim.get_rigid_object(reference_entity_cfg.uid).pos[env_ids]
    rotation = None
    if rotation_range is not None:
        rotation = matrix_from_euler(torch.deg2rad(draw(env, env_ids, rotation_range, 3)))
    if not hasattr(env, store_key):
        setattr(env, store_key, torch.eye(4, device=env.device).repeat(env.num_envs, 1, 1))
    # A new tensor, so that tensors read before do not change.
    poses: Tensor = getattr(env, store_key)
    setattr(env, store_key, poses.index_copy(0, env_ids, pose_from_pos_matrix(pos, rotation)))


def randomize_robot_qpos(
    env: TermEnv,
    env_ids: Tensor,
    qpos_range: types.JointRange,
    joint_ids: types.JointIds | None = None,
    relative_qpos: bool = True,
    entity_cfg: types.RobotEntity | None = None,
) -> None:
    """Put the robot's joints at random positions within their limits, drives' targets included, and at rest.

    Args:
        qpos_range: ``[lowest, highest]`` of each joint, or of all, rad or m.
        joint_ids: joints; None: all, or ``entity_cfg``'s.
        relative_qpos: the range is around the configured initial position.
        entity_cfg: the robot, of which ``joint_names`` or ``control_parts`` name some joints; None: the first.
    """
    robot = env.robot if entity_cfg is None else env.sim.get_robot(entity_cfg.uid)
    named = named_joints(robot, entity_cfg, "randomize_robot_qpos")
    ids = named if joint_ids is None else list(joint_ids)
    columns = constant(tuple(ids), env.device)
    qpos = draw(env, env_ids, qpos_range, len(ids))
    if relative_qpos:
        qpos = qpos + robot.body_data.default_qpos[0, columns]
    limits = robot.body_data.qpos_limits[0, columns]
    robot.set_qpos(torch.clamp(qpos, limits[:, 0], limits[:, 1]), ids, env_ids, target=False)
    robot.set_qvel(torch.zeros_like(qpos), ids, env_ids)


def randomize_robot_eef_pose(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfg: types.RobotEntity,
    position_range: types.Range3 | None = None,
    rotation_range: types.Range3 | None = None,
) -> None:
    """Put the tools of a robot at random poses around their present ones, by inverse kinematics, and at rest.

    Where no joint positions within the limits reach the drawn pose, the joints stay as they are.

    Args:
        entity_cfg: the robot; its ``control_parts`` name the parts with the tools, None: ``arm``.
        position_range: range of the shift along x, y, z, m.
        rotation_range: range of the Euler angles of the turn about the fixed axes, degrees.
    """
    robot = env.sim.get_robot(entity_cfg.uid)
    parts = entity_cfg.control_parts or ["arm"]
    for part in [parts] if isinstance(parts, str) else parts:
        present = robot.get_qpos(part)[env_ids]
        pose = robot.compute_fk(present, part, to_matrix=False, env_ids=env_ids)
        wanted = draw_pose(env, env_ids, pose, position_range, rotation_range, True, True)
        success, qpos = robot.compute_ik(pose_from_row(wanted), present, part, env_ids=env_ids)
        qpos = torch.where(success[:, None], qpos, present)
        robot.set_qpos(qpos, env_ids=env_ids, target=False, name=part)
        robot.set_qvel(torch.zeros_like(qpos), env_ids=env_ids, name=part)


def planner_grid_cell_sampler(
    env: TermEnv,
    env_ids: Tensor,
    position_range: types.Range2,
    reference_height: float,
    object_uid_list: Sequence[str],
    grid_size: tuple[PositiveInt, PositiveInt],
    physics_update_step: int = -1,
) -> None:
    """Put rigid bodies into different cells of a horizontal grid, at the cells' centres, turned as configured, at rest.

    Args:
        position_range: ``[lowest, highest]`` corner of the grid, x and y, m.
        reference_height: z of the bodies, m.
        object_uid_list: bodies to place.
        grid_size: number of cells along x and along y.
        physics_update_step: physics substeps that these environments make afterwards; none unless above 0.
    """
    columns, rows = grid_size
    if len(object_uid_list) > columns * rows:
        raise ConfigError(
            f"planner_grid_cell_sampler: {columns} x {rows} cells are too few for {len(object_uid_list)} objects"
        )
    # The order of random numbers is a random order of the cells.
    order = env.random.uniform(env_ids, 0.0, 1.0, columns * rows).argsort(dim=1)
    low, high = constant(tuple(map(tuple, position_range)), env.device, torch.float32)
    counts = constant((columns, rows), env.device)
    for i, uid in enumerate(object_uid_list):
        cell = torch.stack((order[:, i] % columns, order[:, i] // columns), dim=1)
        xy = low + (cell + 0.5) * (high - low) / counts
        body = env.sim.get_rigid_object(uid)
        height = torch.full_like(xy[:, :1], reference_height)
        body.set_local_pose(torch.cat((xy, height, body.initial_quat.expand(len(xy), 4)), dim=1), env_ids)
        body.clear_dynamics(env_ids)
    if physics_update_step > 0:
        env.sim.update(physics_update_step, env_ids)
