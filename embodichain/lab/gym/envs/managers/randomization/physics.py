"""Random masses, sizes, frictions, drives, pushes and base states. Shapes: N environments, n in ``env_ids``, J joints.

Values stay until the next draw: in mode ``reset`` for an episode, in mode ``startup`` for ever.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pydantic import NonNegativeFloat
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers import types
from embodichain.lab.gym.envs.managers.base import Functor, TermEnv
from embodichain.lab.sim import SimulationManager
from embodichain.lab.sim.math import quat_from_euler, quat_mul
from embodichain.lab.sim.model.drives import match_names
from embodichain.lab.sim.objects import Articulation, BasePose
from embodichain.lab.sim.servos import HISTORY
from embodichain.utils import ConfigError
from embodichain.utils.device import constant

__all__ = [
    "push_robot",
    "randomize_base_pose",
    "randomize_base_velocity",
    "randomize_joint_drive",
    "randomize_joint_velocity",
    "randomize_link_center_of_mass",
    "randomize_link_friction",
    "randomize_link_mass",
    "randomize_motor_strength",
    "randomize_rigid_object_center_of_mass",
    "randomize_rigid_object_friction",
    "randomize_rigid_object_mass",
    "randomize_rigid_object_scale",
    "randomize_rigid_objects_scale",
    "randomize_servos",
]


def randomize_rigid_object_mass(
    env: TermEnv, env_ids: Tensor, entity_cfg: types.RigidEntity, mass_range: types.Range1, relative: bool = False
) -> None:
    """Draw the mass of a dynamic body; its moments of inertia and its damping follow in proportion.

    Args:
        mass_range: ``[lowest, highest]``, kg. At least a thousandth of the configured mass remains.
        relative: the range is added to the configured mass.
    """
    physics = env.sim.get_rigid_object(entity_cfg.uid).physics
    mass = draw_number(env, env_ids, mass_range)
    if relative:
        mass = mass + physics.initial_mass
    physics.set_mass(mass.clamp(min=physics.least_mass), env_ids)


class _MovesCentersOfMass(Functor):
    @classmethod
    @override
    def prepare_scene(cls, sim: SimulationManager, params: Mapping[str, Any]) -> None:
        sim.vary_inertia(entity_uid(params["entity_cfg"]))


class randomize_rigid_object_center_of_mass(_MovesCentersOfMass):  # noqa: N801 (named like a function, as configs name it)
    """Draw the centre of mass of a dynamic body.

    Args:
        com_pos_offset_range: ``[lowest, highest]`` offset from the configured place along the body's x, y, z, m.
    """

    @override
    def __call__(
        self, env: TermEnv, env_ids: Tensor, entity_cfg: types.RigidEntity, com_pos_offset_range: types.Range3
    ) -> None:
        physics = env.sim.get_rigid_object(entity_cfg.uid).physics
        physics.set_center_of_mass_offset(draw(env, env_ids, com_pos_offset_range, 3), env_ids)


def randomize_rigid_object_friction(
    env: TermEnv, env_ids: Tensor, entity_cfg: types.RigidEntity, friction_range: types.Range1, relative: bool = False
) -> None:
    """Draw the sliding friction coefficient of a body; of two touching bodies the larger counts.

    Args:
        friction_range: ``[lowest, highest]``; below 0 it is 0.
        relative: the range is added to the configured coefficient.
    """
    body = env.sim.get_rigid_object(entity_cfg.uid)
    friction = draw_number(env, env_ids, friction_range)
    if relative:
        friction = friction + body.cfg.attrs.dynamic_friction
    body.physics.set_friction(friction.clamp(min=0.0), env_ids)


def randomize_joint_drive(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfg: types.JointedEntity,
    stiffness_range: types.FactorRange = (1.0, 1.0),
    damping_range: types.FactorRange = (1.0, 1.0),
) -> None:
    """Draw factors of the gains of a robot's or an articulation's drives, for each joint.

    Args:
        entity_cfg: owner of the drives; ``joint_names`` names some by names or regular expressions, None: all.
        stiffness_range: ``[lowest, highest]`` factor of the stiffness.
        damping_range: ``[lowest, highest]`` factor of the damping; up to 2 a drive stays stable in any pose. A servo
            has none: its motor brakes.
    """
    articulation: Articulation = env.sim.get_articulation_or_robot(entity_cfg.uid)
    ids = named_joints(articulation, entity_cfg, "randomize_joint_drive")
    each = len(ids)
    ends = zip(stiffness_range, damping_range, strict=True)
    bounds = [[stiffness] * each + [damping] * each for stiffness, damping in ends]
    factors = draw(env, env_ids, bounds, 2 * each)
    articulation.drives.scale(factors[:, :each], factors[:, each:], ids, env_ids)


def randomize_rigid_object_scale(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfg: types.RigidEntity,
    scale_factor_range: types.ScaleRange,
    same_scale_all_axes: bool = True,
) -> None:
    """Draw the size of a body as a factor of the configured one; its mass stays, and its moments of inertia follow.

    Meshes cannot be scaled in single environments; spheres and capsules only alike along all axes, cylinders alike
    along x and y.

    Args:
        scale_factor_range: ``[lowest, highest]`` factor, of one number each, or of three (x, y, z).
        same_scale_all_axes: one factor for all axes, from the first numbers of the range.
    """
    randomize_rigid_objects_scale(env, env_ids, [entity_cfg], scale_factor_range, same_scale_all_axes)


def randomize_rigid_objects_scale(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfgs: list[types.RigidEntity],
    scale_factor_range: types.ScaleRange,
    same_scale_all_axes: bool = True,
    shared_sample: bool = False,
) -> None:
    """Draw the sizes of several bodies, as ``randomize_rigid_object_scale`` does for one.

    Args:
        entity_cfgs: the bodies.
        scale_factor_range: ``[lowest, highest]`` factor, of one number each, or of three (x, y, z).
        same_scale_all_axes: one factor for all axes, from the first numbers of the range.
        shared_sample: the same factors for all bodies of an environment.
    """
    scale: Tensor | None = None
    for entity in entity_cfgs:
        if scale is None or not shared_sample:
            size = 1 if same_scale_all_axes else 3
            scale = draw(env, env_ids, [bound[:size] for bound in scale_factor_range], size).expand(-1, 3)
        env.sim.get_rigid_object(entity.uid).physics.set_body_scale(scale, env_ids)


def named_joints(articulation: Articulation, entity_cfg: types.SceneEntityCfg | None, place: str) -> list[int]:
    """Return the indices of an entity's ``joint_names``, of its ``control_parts``, or of all joints.

    Names keep their order, so that a range's numbers are in it; joints that patterns match are in the robot's.
    """
    if entity_cfg is None:
        return articulation.get_joint_ids()
    if entity_cfg.joint_names is None:
        parts = entity_cfg.control_parts
        each = [parts] if isinstance(parts, str) or parts is None else parts
        return [joint for part in each for joint in articulation.get_joint_ids(part)]
    given, names = entity_cfg.joint_names, articulation.joint_names
    patterns = [given] if isinstance(given, str) else given
    found = [match_names([pattern], names, f"{place}: entity_cfg.joint_names") for pattern in patterns]
    ids = list(dict.fromkeys(names.index(name) for matches in found for name in matches))
    return ids if len(ids) == len(patterns) else sorted(ids)


def entity_uid(entity: types.SceneEntityCfg | Mapping[str, Any]) -> str:
    """Return the uid of an entity parameter, converted or plain."""
    return entity.uid if isinstance(entity, types.SceneEntityCfg) else str(entity["uid"])


_ALONG = ((-0.5, -0.5, 0.0), (0.5, 0.5, 0.0))
_NOT_AT_ALL = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


def push_robot(
    env: TermEnv,
    env_ids: Tensor,
    velocity_range: types.Range3 = _ALONG,
    angular_velocity_range: types.Range3 = _NOT_AT_ALL,
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
    velocity_range: types.Range3 = _ALONG,
    angular_velocity_range: types.Range3 = _NOT_AT_ALL,
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
    position_range: types.Range3 | None = None,
    rotation_range: types.Range3 | None = None,
    turned_share: types.PositiveShare = 1.0,
) -> None:
    """Move the robot's base, which is free, by a random shift and turn from its present pose; it is then at rest.

    Args:
        position_range: ``[lowest, highest]`` shift along the environment's x, y, z, m.
        rotation_range: ``[lowest, highest]`` Euler angles of the turn about the environment's axes, degrees.
        turned_share: probability of the turn; else the base is only shifted.
    """
    base = _free_base(env, "randomize_base_pose")
    present = base.get()[env_ids]
    pose = draw_pose(env, env_ids, present, position_range, rotation_range, True, True)
    turned = env.random.uniform(env_ids, 0.0, 1.0, 1) < turned_share
    pose[:, 3:] = torch.where(turned, pose[:, 3:], present[:, 3:])
    base.set(pose, env_ids)


def randomize_joint_velocity(
    env: TermEnv, env_ids: Tensor, qvel_range: types.JointRange, entity_cfg: types.RobotEntity | None = None
) -> None:
    """Draw the velocities of a robot's joints.

    Args:
        qvel_range: ``[lowest, highest]`` of each joint, or of all, rad/s or m/s.
        entity_cfg: the robot, of which ``joint_names`` names some joints; None: the environment's first.
    """
    robot = env.robot if entity_cfg is None else env.sim.get_robot(entity_cfg.uid)
    ids = named_joints(robot, entity_cfg, "randomize_joint_velocity")
    robot.set_qvel(draw(env, env_ids, qvel_range, len(ids)), ids, env_ids)


def randomize_link_mass(
    env: TermEnv, env_ids: Tensor, entity_cfg: types.JointedEntity, mass_range: types.Range1, relative: bool = True
) -> None:
    """Draw the masses of links, each by itself; their moments of inertia follow in proportion.

    Args:
        entity_cfg: the robot or articulation; ``link_names`` names some links, None: all. Links without mass have none
            afterwards.
        mass_range: ``[lowest, highest]``, kg. At least a thousandth of the model's mass remains.
        relative: the range is added to the model's mass.
    """
    physics = env.sim.get_articulation_or_robot(entity_cfg.uid).link_physics
    bodies = physics.find(entity_cfg.link_names, "randomize_link_mass: entity_cfg.link_names")
    initial = physics.initial_mass(bodies)
    mass = env.random.uniform(env_ids, *mass_range, len(bodies))
    mass = torch.maximum(mass + initial if relative else mass, 1e-3 * initial)
    physics.set_mass(mass, bodies, env_ids)


class randomize_link_center_of_mass(_MovesCentersOfMass):  # noqa: N801 (named like a function, as configs name it)
    """Draw the centres of mass of links, each by itself.

    Args:
        entity_cfg: the robot or articulation; ``link_names`` names some links, None: all.
        com_pos_offset_range: ``[lowest, highest]`` offset from the model's along the link's x, y, z, m.
    """

    @override
    def __call__(
        self, env: TermEnv, env_ids: Tensor, entity_cfg: types.JointedEntity, com_pos_offset_range: types.Range3
    ) -> None:
        physics = env.sim.get_articulation_or_robot(entity_cfg.uid).link_physics
        bodies = physics.find(entity_cfg.link_names, "randomize_link_center_of_mass: entity_cfg.link_names")
        low, high = (bound * len(bodies) for bound in com_pos_offset_range)
        offset = draw(env, env_ids, (low, high), 3 * len(bodies)).unflatten(1, (-1, 3))
        physics.set_center_of_mass_offset(offset, bodies, env_ids)


def randomize_link_friction(
    env: TermEnv, env_ids: Tensor, entity_cfg: types.JointedEntity, friction_range: types.Range1, relative: bool = False
) -> None:
    """Draw the sliding friction coefficient of links' collision shapes, one for all of an environment.

    Args:
        entity_cfg: the robot or articulation; ``link_names`` names some links, None: all.
        friction_range: ``[lowest, highest]``; below 0 it is 0.
        relative: the range is added to the model's coefficient of each shape, and of each pair of shapes in the file.
    """
    physics = env.sim.get_articulation_or_robot(entity_cfg.uid).link_physics
    shapes = physics.shapes(physics.find(entity_cfg.link_names, "randomize_link_friction: entity_cfg.link_names"))
    if not shapes:
        raise ConfigError("randomize_link_friction: entity_cfg.link_names: none of the links has a collision shape")
    physics.set_friction(draw_number(env, env_ids, friction_range), shapes, env_ids, relative)


def randomize_motor_strength(
    env: TermEnv, env_ids: Tensor, entity_cfg: types.JointedEntity, strength_range: types.PositiveRange
) -> None:
    """Draw a factor of each motor's effort limit, stiffness and damping; the factors of ``randomize_joint_drive`` stay.

    Args:
        entity_cfg: owner of the motors; ``joint_names`` names some by names or regular expressions, None: all.
        strength_range: ``[lowest, highest]`` factor, above 0.
    """
    articulation = env.sim.get_articulation_or_robot(entity_cfg.uid)
    ids = named_joints(articulation, entity_cfg, "randomize_motor_strength")
    articulation.drives.set_strength(env.random.uniform(env_ids, *strength_range, len(ids)), ids, env_ids)


def randomize_servos(
    env: TermEnv,
    env_ids: Tensor,
    voltage_range: types.PositiveRange | None = None,
    sag_range: types.Range1 = (0.0, 0.0),
    lowest_voltage: NonNegativeFloat = 0.0,
    friction_range: types.PositiveRange = (1.0, 1.0),
    delay: types.Delay = (0, 0),
) -> None:
    """Draw the supply, dry friction and latency of the servos (``robot.drive_pros.servo``), one for all of a robot's.

    The factors of ``randomize_motor_strength`` and ``randomize_joint_drive`` stay.

    Args:
        voltage_range: ``[lowest, highest]`` supply, V; None: the servo's nominal one.
        sag_range: ``[lowest, highest]`` drop of the supply per torque of all servos, V/Nm.
        lowest_voltage: supply below which it does not sag, V.
        friction_range: ``[lowest, highest]`` factor of the dry friction; the viscous one stays.
        delay: ``[lowest, highest]`` physics substeps until a target reaches the servos.
    """
    servos, longest = env.sim.backend.servos, (HISTORY - 1) * env.cfg.sim_steps_per_control
    if servos is None or not servos.is_servo.any():
        raise ConfigError("randomize_servos: the robot has none; needed is robot.drive_pros.servo")
    if delay[1] > longest:
        raise ConfigError(f"randomize_servos: params.delay: at most {longest} substeps, got {list(delay)}")
    supply = voltage_range or (servos.servo.voltage, servos.servo.voltage)
    low, high = zip(supply, sag_range, friction_range, (delay[0], delay[1] + 1.0), strict=True)
    rows, drawn = env_ids.numpy(), draw(env, env_ids, (low, high), 4).numpy().T
    servos.lowest_voltage = lowest_voltage
    servos.voltage[rows], servos.sag[rows], friction, late = drawn
    servos.delay[rows] = late.astype(int).clip(max=delay[1])
    servos.set_friction(rows, friction)


def _free_base(env: TermEnv, place: str) -> BasePose:
    """Return the base of the environment's robot; ConfigError where it is fixed."""
    base = env.robot.base
    if not base.is_free:
        raise ConfigError(f"{place}: the base of robot '{env.robot.uid}' is fixed; needed is robot.fix_base false")
    return base


def _draw_velocity(env: TermEnv, env_ids: Tensor, linear: types.Range3, angular: types.Range3) -> Tensor:
    """Return linear and angular velocities, [n, 6]."""
    low, high = ((*a, *b) for a, b in zip(linear, angular, strict=True))
    return draw(env, env_ids, (low, high), 6)


def draw(env: TermEnv, env_ids: Tensor, bounds: Sequence[Sequence[float]], size: int) -> Tensor:
    """Return numbers between ``[lowest, highest]``, each a list of ``size`` or one for all, [n, size]."""
    low, high = constant(tuple(map(tuple, bounds)), env.device, torch.float32)
    return env.random.uniform(env_ids, low, high, size)


def draw_number(env: TermEnv, env_ids: Tensor, bounds: Sequence[float]) -> Tensor:
    """Return one number between ``[lowest, highest]``, [n]."""
    low, high = bounds
    return env.random.uniform(env_ids, low, high, 1).squeeze(1)


def draw_pose(
    env: TermEnv,
    env_ids: Tensor,
    row: Tensor,
    position_range: Sequence[Sequence[float]] | None,
    rotation_range: Sequence[Sequence[float]] | None,
    relative_position: bool,
    relative_rotation: bool,
) -> Tensor:
    """Return random poses, [n, 7]: position, quaternion wxyz.

    Args:
        row: [n, 7] or [7] base values of the ranges, kept where there is no range.
        position_range: range of x, y, z, m.
        rotation_range: range of the Euler angles, degrees.
        relative_position: add ``row``'s position.
        relative_rotation: turn after ``row``'s rotation (about the fixed axes), else instead.
    """
    row = row.expand(len(env_ids), 7)
    pos, quat = row[:, :3], row[:, 3:]
    if position_range is not None:
        drawn = draw(env, env_ids, position_range, 3)
        pos = drawn + pos if relative_position else drawn
    if rotation_range is not None:
        turn = quat_from_euler(torch.deg2rad(draw(env, env_ids, rotation_range, 3)))
        quat = quat_mul(turn, quat) if relative_rotation else turn
    return torch.cat((pos, quat), dim=1)
