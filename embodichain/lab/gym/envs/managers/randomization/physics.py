"""Random masses, sizes, frictions and drives. Shapes: N environments, n in ``env_ids``, J joints.

Values stay until the next draw: in mode ``reset`` for an episode, in mode ``startup`` for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers.base import Functor
from embodichain.lab.gym.envs.managers.cfg import JointedEntity, Range, Range1, Range3, RigidEntity, SceneEntityCfg
from embodichain.lab.gym.envs.managers.randomization.draws import draw, draw_number
from embodichain.lab.gym.envs.managers.term_env import TermEnv
from embodichain.lab.sim import SimulationManager
from embodichain.lab.sim.model.drives import match_names
from embodichain.lab.sim.objects import Articulation


def randomize_rigid_object_mass(
    env: TermEnv, env_ids: Tensor, entity_cfg: RigidEntity, mass_range: Range1, relative: bool = False
) -> None:
    """Draw the mass of a dynamic body; its moments of inertia and its damping follow in proportion.

    Args:
        entity_cfg: the body.
        mass_range: ``[lowest, highest]``, kg. At least a thousandth of the configured mass remains.
        relative: the range is added to the configured mass.
    """
    physics = env.sim.get_rigid_object(entity_cfg.uid).physics
    mass = draw_number(env, env_ids, mass_range)
    if relative:
        mass = mass + physics.initial_mass
    physics.set_mass(mass.clamp(min=physics.least_mass), env_ids)


class randomize_rigid_object_center_of_mass(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Draw the centre of mass of a dynamic body.

    Args:
        entity_cfg: the body.
        com_pos_offset_range: ``[lowest, highest]`` offset from the configured place along the body's x, y, z, m.
    """

    @classmethod
    @override
    def prepare_scene(cls, sim: SimulationManager, params: Mapping[str, Any]) -> None:
        sim.vary_inertia(entity_uid(params["entity_cfg"]))

    @override
    def __call__(self, env: TermEnv, env_ids: Tensor, entity_cfg: RigidEntity, com_pos_offset_range: Range3) -> None:
        physics = env.sim.get_rigid_object(entity_cfg.uid).physics
        physics.set_center_of_mass_offset(draw(env, env_ids, com_pos_offset_range, 3), env_ids)


def randomize_rigid_object_friction(
    env: TermEnv, env_ids: Tensor, entity_cfg: RigidEntity, friction_range: Range1, relative: bool = False
) -> None:
    """Draw the sliding friction coefficient of a body; of two touching bodies the larger counts.

    Args:
        entity_cfg: the body.
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
    entity_cfg: JointedEntity,
    stiffness_range: Range1 = (1.0, 1.0),
    damping_range: Range1 = (1.0, 1.0),
) -> None:
    """Draw factors of the gains of a robot's or an articulation's drives, for each joint.

    Args:
        entity_cfg: owner of the drives; ``joint_names`` names some by names or regular expressions, None: all.
        stiffness_range: ``[lowest, highest]`` factor of the stiffness.
        damping_range: ``[lowest, highest]`` factor of the damping; up to 2 a drive stays stable in any pose.
    """
    articulation: Articulation = env.sim.get_articulation_or_robot(entity_cfg.uid)
    ids = named_joints(articulation.joint_names, entity_cfg, "randomize_joint_drive")
    each = len(ids)
    ends = zip(stiffness_range, damping_range, strict=True)
    bounds = [[stiffness] * each + [damping] * each for stiffness, damping in ends]
    factors = draw(env, env_ids, bounds, 2 * each)
    articulation.drives.scale(factors[:, :each], factors[:, each:], ids, env_ids)


def randomize_rigid_object_scale(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfg: RigidEntity,
    scale_factor_range: Range,
    same_scale_all_axes: bool = True,
) -> None:
    """Draw the size of a body as a factor of the configured one; its mass stays, and its moments of inertia follow.

    Meshes cannot be scaled in single environments; spheres and capsules only alike along all axes, cylinders alike
    along x and y.

    Args:
        entity_cfg: the body.
        scale_factor_range: ``[lowest, highest]`` factor, of one number each, or of three (x, y, z).
        same_scale_all_axes: one factor for all axes, from the first numbers of the range.
    """
    scale = _draw_scale(env, env_ids, scale_factor_range, same_scale_all_axes)
    env.sim.get_rigid_object(entity_cfg.uid).physics.set_body_scale(scale, env_ids)


def randomize_rigid_objects_scale(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfgs: list[RigidEntity],
    scale_factor_range: Range,
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
            scale = _draw_scale(env, env_ids, scale_factor_range, same_scale_all_axes)
        env.sim.get_rigid_object(entity.uid).physics.set_body_scale(scale, env_ids)


def _draw_scale(env: TermEnv, env_ids: Tensor, bounds: Range, is_same: bool) -> Tensor:
    """Return factors along the axes, [n, 3]."""
    if is_same:
        return draw(env, env_ids, [bound[:1] for bound in bounds], 1).expand(-1, 3)
    return draw(env, env_ids, bounds, 3)


def named_joints(names: list[str], entity_cfg: SceneEntityCfg | None, place: str) -> list[int]:
    """Return the indices of the joints that an entity's ``joint_names`` name, or of all."""
    if entity_cfg is None or entity_cfg.joint_names is None:
        return list(range(len(names)))
    given = entity_cfg.joint_names
    patterns = [given] if isinstance(given, str) else given
    return [names.index(name) for name in match_names(patterns, names, f"{place}: entity_cfg.joint_names")]


def entity_uid(entity: SceneEntityCfg | Mapping[str, Any]) -> str:
    """Return the uid of an entity parameter, converted or plain."""
    return entity.uid if isinstance(entity, SceneEntityCfg) else str(entity["uid"])
