"""The default camera: where it sees everything, or an entity, as large as the image allows."""

import copy

import mujoco
import numpy as np

from embodichain.lab.sim.backend.base import Backend
from embodichain.lab.sim.cfg import Intrinsics, Vec3
from embodichain.lab.sim.rendering.live_scene import box_corners, geom_looks, is_seen, soft_points
from embodichain.lab.sim.rendering.renderer import Appearance, CameraPose

# From the target to the camera: in front of robots that face +x, and of scenes that face -y, as MuJoCo's own camera.
_DIRECTION = np.array([1.0, -1.0, 0.8]) / 2.64**0.5
_FILL = 0.75  # share of the image, so that there is room to move
_UNBOUNDED = (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_HFIELD)


def frame(backend: Backend, appearance: Appearance, bodies: list[int], up: Vec3, intrinsics: Intrinsics) -> CameraPose:
    """Return a pose from which the visible geoms of the first environment fill three quarters of the image.

    Without bodies it shows all but the world, or the world if there are no others. The intrinsics are fx, fy, cx, cy
    in pixels; cx and cy must be in the middle.
    """
    points = _visible_points(backend, appearance, bodies)
    centre = (points.min(axis=0) + points.max(axis=0)) / 2
    right = np.cross(up, _DIRECTION) / np.linalg.norm(np.cross(up, _DIRECTION))
    x, y, z = np.stack([right, np.cross(_DIRECTION, right), _DIRECTION]) @ (points - centre).T
    fx, fy, cx, cy = intrinsics
    # A point z before the centre, at the distance d of the camera, has its pixel fx |x| / (d - z) from the middle.
    distance = float((z + np.maximum(np.abs(x) * fx / cx, np.abs(y) * fy / cy) / _FILL).max())
    eye, target = ((float(a), float(b), float(c)) for a, b, c in (centre + distance * _DIRECTION, centre))
    return CameraPose(eye, target, up, intrinsics)


def _visible_points(backend: Backend, appearance: Appearance, bodies: list[int]) -> np.ndarray:
    """Return points [P, 3] around visible geoms but planes and height fields, and of flexes and tendons."""
    model = copy.copy(backend.visual_model)
    data = mujoco.MjData(model)
    appearance.load(0, model)
    backend.load_render_data(0, data)
    is_shape = is_seen(geom_looks(model, np.ones((model.ntex, 3)))) & ~np.isin(model.geom_type, _UNBOUNDED)
    is_chosen = np.isin(model.geom_bodyid, bodies) if bodies else model.geom_bodyid > 0
    soft = [] if bodies else soft_points(model, data)
    points = np.concatenate([box_corners(model, data, is_shape & is_chosen), *soft])
    points = points if len(points) else box_corners(model, data, is_shape)
    return points if len(points) else np.array([[-0.5] * 3, [0.5] * 3])
