"""The sky, the ground and the lights of every scene."""

from __future__ import annotations

import mujoco

from embodichain.lab.sim.cfg import EmissionLightCfg, LightCfg

FULL_INTENSITY = 100.0
"""Intensity of a light that shines with its full colour."""
_AMBIENT = 0.35  # the default
_TYPES = {
    "point": mujoco.mjtLightType.mjLIGHT_POINT,
    "sun": mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
    "direction": mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
    "spot": mujoco.mjtLightType.mjLIGHT_SPOT,
}


def add_surroundings(spec: mujoco.MjSpec) -> None:
    """Add the sky, the geom ``ground``, the light ``sun`` and ambient light, and set the quality of rendering."""
    spec.visual.headlight.ambient = [0.35, 0.35, 0.35]
    spec.visual.headlight.diffuse = [0.35, 0.35, 0.35]
    spec.visual.headlight.specular = [0.1, 0.1, 0.1]
    # The largest image that can be rendered off screen.
    spec.visual.global_.offwidth, spec.visual.global_.offheight = 1920, 1080
    # With these an image takes 40 ms on a software renderer, with the engine's defaults 60 ms. The wide extent
    # keeps the edge of the shadow map out of sight.
    spec.visual.quality.shadowsize, spec.visual.quality.offsamples = 2048, 0
    spec.stat.extent, spec.stat.center = 6.0, [-0.3, 0.0, 0.3]
    builtin = mujoco.mjtBuiltin
    sky = spec.add_texture(name="sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX, width=256, height=1536)
    sky.builtin, sky.rgb1, sky.rgb2 = builtin.mjBUILTIN_GRADIENT, [0.86, 0.91, 0.96], [0.45, 0.55, 0.68]
    floor = spec.add_texture(name="ground", type=mujoco.mjtTexture.mjTEXTURE_2D, width=512, height=512)
    floor.builtin, floor.rgb1, floor.rgb2 = builtin.mjBUILTIN_CHECKER, [0.83, 0.84, 0.85], [0.76, 0.78, 0.80]
    material = spec.add_material(name="ground", texrepeat=[2, 2], texuniform=True, specular=0.1, shininess=0.1)
    textures = list(material.textures)
    textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "ground"
    material.textures = textures
    light = spec.worldbody.add_light(name="sun", pos=[-0.5, 0.5, 3.0], dir=[-0.1, -0.2, -1.0])
    light.type = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
    light.diffuse = [0.5, 0.5, 0.47]
    light.castshadow = True
    # Of two touching geoms the larger friction counts: the ground leaves it to the object.
    ground = spec.worldbody.add_geom(name="ground", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1], material="ground")
    ground.friction = [0.0, 0.005, 0.0001]


def add_light(spec: mujoco.MjSpec, cfg: LightCfg) -> None:
    """Add a light; the first one replaces the sun."""
    if spec.light("sun") is not None:
        spec.delete(spec.light("sun"))
    light = spec.worldbody.add_light(name=cfg.uid, pos=cfg.init_pos, dir=cfg.direction)
    light.type = _TYPES[cfg.light_type]
    light.diffuse = [part * cfg.intensity / FULL_INTENSITY for part in cfg.color]
    light.castshadow = cfg.enable_shadow
    light.cutoff = cfg.spot_angle_outer


def ambient_of(cfg: EmissionLightCfg) -> list[float]:
    """Return MuJoCo's ambient light, [3], of an emission light."""
    return [part * cfg.intensity / FULL_INTENSITY * _AMBIENT for part in cfg.color]
