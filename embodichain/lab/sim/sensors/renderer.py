"""Pictures without a window, of one environment from a free camera."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import mujoco
import numpy as np

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.gl import GL_HELP
from embodichain.lab.sim.sensors.appearance import Appearance

__all__ = ["CameraPose", "Renderer", "RenderingUnavailableError", "make_renderer", "place_camera"]

_NEAR, _FAR = 0.02, 50.0  # m


class RenderingUnavailableError(RuntimeError):
    """No pictures can be made here; the message says what to install."""


def make_renderer(model: mujoco.MjModel, width: int, height: int) -> mujoco.Renderer:
    """Return the engine's renderer for pictures of a size, to be used by this thread only.

    Raises:
        RenderingUnavailableError: there is no OpenGL without a window.
    """
    try:
        return mujoco.Renderer(model, height=height, width=width)
    # The engine's OpenGL backends raise whatever their loaders raise.
    except Exception as error:
        raise RenderingUnavailableError(f"{GL_HELP} ({error})") from error


def place_camera(
    renderer: mujoco.Renderer,
    eye: np.ndarray,
    forward: np.ndarray,
    up: np.ndarray,
    intrinsics: np.ndarray,
    size: tuple[int, int],
    near: float,
    far: float,
) -> None:
    """Put the camera of a scene that is up to date where the next picture is to be taken from.

    Args:
        renderer: it.
        eye: world position [3], m.
        forward: unit vector [3] of the view.
        up: unit vector [3] that is upwards in the picture.
        intrinsics: fx, fy, cx, cy, pixels.
        size: width and height, pixels.
        near, far: the range that is seen, m.
    """
    width, height = size
    fx, fy, cx, cy = intrinsics
    for camera in renderer.scene.camera:
        camera.pos, camera.forward, camera.up = eye, forward, up
        camera.orthographic = 0
        camera.frustum_near, camera.frustum_far = near, far
        # The frustum at the near plane: rows grow downwards, the frustum's axis upwards.
        camera.frustum_top = near * cy / fy
        camera.frustum_bottom = -near * (height - cy) / fy
        camera.frustum_center = near * (width / 2 - cx) / fx
        camera.frustum_width = near * width / fx / 2


@dataclass(frozen=True)
class CameraPose:
    """Where a pinhole camera is and what it sees, in the convention of OpenCV's intrinsics.

    Attributes:
        eye: world position, m.
        target: the point in the middle of the view, m.
        up: direction that is upwards in the picture.
        intrinsics: fx, fy, cx, cy in pixels.
    """

    eye: tuple[float, float, float]
    target: tuple[float, float, float]
    up: tuple[float, float, float]
    intrinsics: tuple[float, float, float, float]


class Renderer:
    """Draws environments off screen. Use it from the thread that made it."""

    def __init__(self, backend: Backend, appearance: Appearance, width: int, height: int) -> None:
        """Get hold of OpenGL.

        Args:
            backend: the simulation to draw.
            appearance: what its environments look like.
            width: of the pictures, pixels.
            height: of the pictures, pixels.

        Raises:
            RenderingUnavailableError: there is no OpenGL without a window.
        """
        self._backend = backend
        self._appearance = appearance
        self._model = copy.copy(backend.visual_model)
        self._data = mujoco.MjData(self._model)
        self._size = (width, height)
        self._renderer = make_renderer(self._model, width, height)

    def render(self, env_id: int, pose: CameraPose) -> np.ndarray:
        """Return the picture of an environment, [height, width, 3] uint8."""
        self._appearance.load(env_id, self._model)
        self._backend.load_render_data(env_id, self._data)
        self._renderer.update_scene(self._data)
        eye = np.array(pose.eye)
        forward = (np.array(pose.target) - eye) / np.linalg.norm(np.array(pose.target) - eye)
        right = np.cross(forward, pose.up)
        up = np.cross(right / np.linalg.norm(right), forward)
        place_camera(self._renderer, eye, forward, up, np.array(pose.intrinsics), self._size, _NEAR, _FAR)
        picture: np.ndarray = self._renderer.render()
        return picture

    def close(self) -> None:
        """Let go of OpenGL."""
        self._renderer.close()
