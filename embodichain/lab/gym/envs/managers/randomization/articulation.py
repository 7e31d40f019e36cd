"""Random pushes, base states and properties of links and motors. Shapes: N environments, n in ``env_ids``, L links."""

from __future__ import annotations

import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.cfg import JointedEntity, JointRange, PositiveRange, Range1, Range3, RobotEntity
from embodichain.lab.gym.envs.managers.randomization.draws import draw, draw_number, draw_pose
from embodichain.lab.gym.envs.managers.randomization.physics import named_joints
from embodichain.lab.gym.envs.managers.term_env import TermEnv
from embodichain.lab.sim.objects.base_pose import BasePose
from embodichain.utils import ConfigError

_ALONG = ((-0.5, -0.5, 0.0), (0.5, 0.5, 0.0))
_NOT_AT_ALL = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


def push_robot(
    env: TermEnv,
    env_ids: Tensor,
    velocity_range: Range3 = _ALONG,
    angular_velocity_range: Range3 = _NOT_AT_ALL,
) -> None:
    """Push the robot: add random velocities to its base's, which is free; of use at intervals.

    Args:
        velocity_range: ``[lowest, highest]`` along the environment's x, y, z, m/s.
        angular_velocity_range: ``[lowest, highest]`` about the base's x, y, z, rad/s.
    """
    base = _free_base(env, "push_robot")
    added = _draw_velocity(env, env_ids, velocity_range, angular_velocity_range)
    base.set_velocity(base.velocity()[env_ids] + added, env_ids)


def randomize_base_velocity(
    env: TermEnv,
    env_ids: Tensor,
    velocity_range: Range3 = _ALONG,
    angular_velocity_range: Range3 = _NOT_AT_ALL,
) -> None:
    """Draw the velocities of the robot's base, which is free; after a draw of its pose, which leaves it at rest.

    Args:
        velocity_range: ``[lowest, highest]`` along the environment's x, y, z, m/s.
        angular_velocity_range: ``[lowest, highest]`` about the base's x, y, z, rad/s.
    """
    base = _free_base(env, "randomize_base_velocity")
    base.set_velocity(_draw_velocity(env, env_ids, velocity_range, angular_velocity_range), env_ids)


def randomize_base_pose(
    env: TermEnv,
    env_ids: Tensor,
    position_range: Range3 | None = None,
    rotation_range: Range3 | None = None,
) -> None:
    """Move the robot's base, which is free, by a random shift and turn from its present pose; it is then at rest.

    Args:
        position_range: ``[lowest, highest]`` shift along the environment's x, y, z, m.
        rotation_range: ``[lowest, highest]`` Euler angles of the turn about the environment's axes, degrees.
    """
    base = _free_base(env, "randomize_base_pose")
    present = base.get()[env_ids]
    base.set(draw_pose(env, env_ids, present, position_range, rotation_range, True, True), env_ids)


def randomize_joint_velocity(
    env: TermEnv, env_ids: Tensor, qvel_range: JointRange, entity_cfg: RobotEntity | None = None
) -> None:
    """Draw the velocities of a robot's joints.

    Args:
        qvel_range: ``[lowest, highest]`` of each joint, or of all, rad/s or m/s.
        entity_cfg: the robot, of which ``joint_names`` names some joints; None: the environment's first.
    """
    robot = env.robot if entity_cfg is None else env.sim.get_robot(entity_cfg.uid)
    ids = named_joints(robot.joint_names, entity_cfg, "randomize_joint_velocity")
    robot.set_qvel(draw(env, env_ids, qvel_range, len(ids)), ids, env_ids)


def randomize_link_mass(
    env: TermEnv, env_ids: Tensor, entity_cfg: JointedEntity, mass_range: Range1, relative: bool = True
) -> None:
    """Draw the masses of links, each by itself; their moments of inertia follow in proportion.

    Args:
        entity_cfg: the robot or articulation; ``link_names`` names some links, None: all.
        mass_range: ``[lowest, highest]``, kg. At least a thousandth of the model's mass remains.
        relative: the range is added to the model's mass.
    """
    physics = env.sim.get_articulation_or_robot(entity_cfg.uid).link_physics
    bodies = physics.find(entity_cfg.link_names, "randomize_link_mass: entity_cfg.link_names")
    initial = physics.initial_mass(bodies)
    mass = env.random.uniform(env_ids, *mass_range, len(bodies))
    mass = torch.maximum(mass + initial if relative else mass, 1e-3 * initial)
    physics.set_mass(mass, bodies, env_ids)


def randomize_link_center_of_mass(
    env: TermEnv, env_ids: Tensor, entity_cfg: JointedEntity, com_pos_offset_range: Range3
) -> None:
    """Draw the centres of mass of links, each by itself.

    Args:
        entity_cfg: the robot or articulation; ``link_names`` names some links, None: all.
        com_pos_offset_range: ``[lowest, highest]`` offset from the model's along the link's x, y, z, m.
    """
    physics = env.sim.get_articulation_or_robot(entity_cfg.uid).link_physics
    bodies = physics.find(entity_cfg.link_names, "randomize_link_center_of_mass: entity_cfg.link_names")
    low, high = (bound * len(bodies) for bound in com_pos_offset_range)
    offset = draw(env, env_ids, (low, high), 3 * len(bodies)).unflatten(1, (-1, 3))
    physics.set_center_of_mass_offset(offset, bodies, env_ids)


def randomize_link_friction(
    env: TermEnv, env_ids: Tensor, entity_cfg: JointedEntity, friction_range: Range1, relative: bool = False
) -> None:
    """Draw the sliding friction coefficient of links' collision shapes, one for all of an environment.

    Args:
        entity_cfg: the robot or articulation; ``link_names`` names some links, None: all.
        friction_range: ``[lowest, highest]``; below 0 it is 0.
        relative: the range is added to the model's coefficient of each shape.
    """
    physics = env.sim.get_articulation_or_robot(entity_cfg.uid).link_physics
    shapes = physics.shapes(physics.find(entity_cfg.link_names, "randomize_link_friction: entity_cfg.link_names"))
    if not shapes:
        raise ConfigError("randomize_link_friction: entity_cfg.link_names: none of the links has a collision shape")
    friction = draw_number(env, env_ids, friction_range)[:, None].expand(-1, len(shapes))
    if relative:
        friction = friction + physics.initial_friction(shapes)
    physics.set_friction(friction.clamp(min=0.0), shapes, env_ids)


def randomize_motor_strength(
    env: TermEnv, env_ids: Tensor, entity_cfg: JointedEntity, strength_range: PositiveRange
) -> None:
    """Draw a factor of each motor's effort limit, stiffness and damping; the factors of ``randomize_joint_drive`` stay.

    Args:
        entity_cfg: owner of the motors; ``joint_names`` names some by names or regular expressions, None: all.
        strength_range: ``[lowest, highest]`` factor, above 0.
    """
    articulation = env.sim.get_articulation_or_robot(entity_cfg.uid)
    ids = named_joints(articulation.joint_names, entity_cfg, "randomize_motor_strength")
    articulation.drives.set_strength(env.random.uniform(env_ids, *strength_range, len(ids)), ids, env_ids)


def _free_base(env: TermEnv, place: str) -> BasePose:
    """Return the base of the environment's robot; ConfigError where it is fixed."""
    base = env.robot.base
    if not base.is_free:
        raise ConfigError(f"{place}: the base of robot '{env.robot.uid}' is fixed; needed is robot.fix_base false")
    return base


def _draw_velocity(env: TermEnv, env_ids: Tensor, linear: Range3, angular: Range3) -> Tensor:
    """Return linear and angular velocities, [n, 6]."""
    low, high = ((*a, *b) for a, b in zip(linear, angular, strict=True))
    return draw(env, env_ids, (low, high), 6)
