"""Random lights, lenses and colours: events that change images, never the physics.

They take row numbers, because appearance is stored on the host. Ranges are ``[lowest, highest]``; colours are RGB, 0 to
1. Shapes: N environments, n in ``env_ids``.
"""

import math

import torch
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers import types
from embodichain.lab.gym.envs.managers.base import Functor, TermEnv
from embodichain.lab.gym.envs.managers.cfg import FunctorCfg
from embodichain.lab.gym.envs.managers.randomization.physics import draw, draw_number
from embodichain.lab.sim.cfg import EmissionLightCfg, VisualMaterialCfg
from embodichain.lab.sim.math import matrix_from_euler, matrix_from_quat, pose_from_pos_matrix
from embodichain.lab.sim.model.terrain import ambient_of
from embodichain.lab.sim.rows import row_numbers
from embodichain.utils import ConfigError, logger

__all__ = [
    "randomize_camera_extrinsics",
    "randomize_camera_intrinsics",
    "randomize_emission_light",
    "randomize_light",
    "randomize_visual_material",
    "set_rigid_object_group_visual_material",
    "set_rigid_object_visual_material",
]


_ANY_COLOR: types.Range3 = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def randomize_light(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfg: types.LightEntity,
    position_range: types.Range3 | None = None,
    color_range: types.Range3 | None = None,
    intensity_range: types.Range1 | None = None,
    direction_range: types.Range3 | None = None,
) -> None:
    """Change a light; values without a range stay.

    Args:
        position_range: around the configured position, m.
        color_range: range of the colour.
        intensity_range: range of the intensity; 100 is full brightness.
        direction_range: around the configured direction.
    """
    env_ids, light = row_numbers(env_ids), env.sim.get_light(entity_cfg.uid)
    if position_range is not None:
        light.set_local_pose(_around(env, env_ids, light.cfg.init_pos, position_range), env_ids)
    if color_range is not None:
        light.set_color(draw(env, env_ids, color_range, 3), env_ids)
    if intensity_range is not None:
        light.set_intensity(draw_number(env, env_ids, intensity_range), env_ids)
    if direction_range is not None:
        light.set_direction(_around(env, env_ids, light.cfg.direction, direction_range), env_ids)


def randomize_emission_light(
    env: TermEnv, env_ids: Tensor, color_range: types.Range3 | None = None, intensity_range: types.Range1 | None = None
) -> None:
    """Change the ambient light.

    Args:
        color_range: range of the colour; None: the configured one.
        intensity_range: range in per cent of the default; None: the configured one.
    """
    env_ids, indirect = row_numbers(env_ids), env.cfg.light.indirect
    cfg = EmissionLightCfg() if indirect is None else indirect.emission_light
    color = torch.tensor(cfg.color, device=env.device) if color_range is None else draw(env, env_ids, color_range, 3)
    parts = color * torch.tensor(ambient_of(EmissionLightCfg()), device=env.device)
    intensity = torch.full((1,), cfg.intensity, device=env.device)
    if intensity_range is not None:
        intensity = draw_number(env, env_ids, intensity_range)
    ambient = parts * intensity[:, None] / EmissionLightCfg().intensity
    env.sim.appearance.write("headlight_ambient", None, ambient, env_ids)


def randomize_camera_intrinsics(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfg: types.CameraEntity,
    focal_x_range: types.Range1 | None = None,
    focal_y_range: types.Range1 | None = None,
    cx_range: types.Range1 | None = None,
    cy_range: types.Range1 | None = None,
) -> None:
    """Change a camera's lens; of a stereo camera, the left one's.

    Args:
        focal_x_range: around the configured fx, pixels.
        focal_y_range: around fy.
        cx_range: around cx.
        cy_range: around cy.
    """
    env_ids, camera = row_numbers(env_ids), env.sim.get_sensor(entity_cfg.uid)
    ranges = [(0.0, 0.0) if bounds is None else bounds for bounds in (focal_x_range, focal_y_range, cx_range, cy_range)]
    low, high = torch.tensor(ranges, device=env.device).unbind(1)
    offsets = env.random.uniform(env_ids, low, high, 4)
    camera.set_intrinsics(torch.tensor(camera.cfg.lens, device=env.device) + offsets, env_ids)


def randomize_camera_extrinsics(
    env: TermEnv,
    env_ids: Tensor,
    entity_cfg: types.CameraEntity,
    pos_range: types.Range3 | None = None,
    euler_range: types.Range3 | None = None,
    eye_range: types.Range3 | None = None,
    target_range: types.Range3 | None = None,
    up_range: types.Range3 | None = None,
) -> None:
    """Move a camera around where its config puts it.

    Args:
        pos_range: around ``pos``, m, in the parent's frame; where the config has no ``eye``.
        euler_range: a turn before the configured one, about the camera's x, then y, then z axis, degrees; as above.
        eye_range: around ``eye``, m; where the config has one.
        target_range: around ``target``, m.
        up_range: around ``up``.
    """
    env_ids, camera = row_numbers(env_ids), env.sim.get_sensor(entity_cfg.uid)
    where = camera.cfg.extrinsics
    nothing = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    if where.eye is not None and where.target is not None:
        if pos_range or euler_range:
            raise ConfigError(f"'{camera.uid}' is placed by eye: give eye_range, target_range and up_range")
        eye = _around(env, env_ids, where.eye, eye_range or nothing)
        target = _around(env, env_ids, where.target, target_range or nothing)
        camera.look_at(eye, target, _around(env, env_ids, where.up, up_range or nothing), env_ids)
        return
    if eye_range or target_range or up_range:
        raise ConfigError(f"'{camera.uid}' is placed by pos: give pos_range and euler_range")
    pos = _around(env, env_ids, where.pos, pos_range or nothing)
    turn = matrix_from_euler(draw(env, env_ids, euler_range or nothing, 3) * (math.pi / 180))
    configured = matrix_from_quat(torch.nn.functional.normalize(torch.tensor(where.quat, device=env.device), dim=0))
    camera.set_local_pose(pose_from_pos_matrix(pos, configured @ turn), env_ids)


def set_rigid_object_visual_material(
    env: TermEnv, env_ids: Tensor, entity_cfg: types.RigidEntity, mat_cfg: VisualMaterialCfg
) -> None:
    """Give a rigid body a colour.

    Args:
        mat_cfg: the appearance.
    """
    env.sim.appearance.set_color(entity_cfg.uid, _rgba(mat_cfg, env), row_numbers(env_ids))


def set_rigid_object_group_visual_material(
    env: TermEnv, env_ids: Tensor, entity_cfg: types.GroupEntity, mat_cfg: VisualMaterialCfg
) -> None:
    """Give all members of a group of rigid bodies a colour.

    Args:
        mat_cfg: the appearance.
    """
    for member in env.sim.get_rigid_object_group(entity_cfg.uid).members:
        env.sim.appearance.set_color(member.uid, _rgba(mat_cfg, env), row_numbers(env_ids))


class randomize_visual_material(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Give an entity a random colour, of its own opacity; ``default_plane`` is the ground.

    Args:
        entity_cfg: rigid body, articulation or robot, or named links of it.
        random_texture_prob: accepted; there are no textures.
        texture_path: accepted with a warning: there are no textures, and colours are drawn instead.
        base_color_range: range of the colour; None: any.
        metallic_range: accepted with a warning; the renderer has no metallic surfaces.
        roughness_range: the same.
        ior_range: the same.
    """

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        names = ("texture_path", "metallic_range", "roughness_range", "ior_range")
        ignored = [name for name in names if cfg.params.get(name) is not None]
        if ignored:
            logger.log_warning(f"randomize_visual_material: without counterpart, not used: {', '.join(ignored)}")

    @override
    def __call__(
        self,
        env: TermEnv,
        env_ids: Tensor,
        entity_cfg: types.SceneEntityCfg,
        random_texture_prob: float = 0.5,
        texture_path: str | None = None,
        base_color_range: types.Range3 | None = None,
        metallic_range: types.Range1 | None = None,
        roughness_range: types.Range1 | None = None,
        ior_range: types.Range1 | None = None,
    ) -> None:
        env_ids = row_numbers(env_ids)
        color = draw(env, env_ids, base_color_range or _ANY_COLOR, 3)
        uid = "ground" if entity_cfg.uid == types.GROUND_UID else entity_cfg.uid
        env.sim.appearance.set_color(uid, color, env_ids, entity_cfg.link_names)


def _rgba(cfg: VisualMaterialCfg, env: TermEnv) -> Tensor:
    return torch.tensor([cfg.base_color], device=env.device)


def _around(env: TermEnv, env_ids: Tensor, middle: types.Vec3, bounds: types.Range3) -> Tensor:
    return torch.tensor(middle, device=env.device) + draw(env, env_ids, bounds, 3)
