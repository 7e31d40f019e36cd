"""Random sizes. Shapes: N environments, n those concerned."""

from __future__ import annotations

from torch import Tensor

from embodichain.lab.gym.envs.managers.cfg import Range, SceneEntityCfg
from embodichain.lab.gym.envs.managers.randomization.draws import draw
from embodichain.lab.gym.envs.managers.term_env import TermEnv

__all__ = ["randomize_rigid_object_scale", "randomize_rigid_objects_scale"]


def randomize_rigid_object_scale(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfg: SceneEntityCfg,
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
    entity_cfgs: list[SceneEntityCfg],
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
