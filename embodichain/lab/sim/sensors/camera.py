"""Pictures of one environment from a free camera."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.gl import GL_HELP

__all__ = ["CameraPose", "Renderer", "RenderingUnavailableError"]

_NEAR, _FAR = 0.02, 50.0  # m


class RenderingUnavailableError(RuntimeError):
    """No pictures can be made here; the message says what to install."""


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

    def __init__(self, backend: Backend, width: int, height: int) -> None:
        """Get hold of OpenGL.

        Args:
            backend: the simulation to draw.
            width: of the pictures, pixels.
            height: of the pictures, pixels.

        Raises:
            RenderingUnavailableError: there is no OpenGL without a window.
        """
        self._backend = backend
        self._model = backend.visual_model
        self._data = mujoco.MjData(self._model)
        self._size = (width, height)
        try:
            self._renderer = mujoco.Renderer(self._model, height=height, width=width)
        # The engine's OpenGL backends raise whatever their loaders raise.
        except Exception as error:
            raise RenderingUnavailableError(f"{GL_HELP} ({error})") from error

    def render(self, env_id: int, pose: CameraPose) -> np.ndarray:
        """Return the picture of an environment, [height, width, 3] uint8."""
        self._backend.load_render_data(env_id, self._data)
        self._renderer.update_scene(self._data)
        self._place_camera(pose)
        picture: np.ndarray = self._renderer.render()
        return picture

    def close(self) -> None:
        """Let go of OpenGL."""
        self._renderer.close()

    def _place_camera(self, pose: CameraPose) -> None:
        width, height = self._size
        fx, fy, cx, cy = pose.intrinsics
        eye, target = np.array(pose.eye), np.array(pose.target)
        forward = (target - eye) / np.linalg.norm(target - eye)
        right = np.cross(forward, pose.up)
        up = np.cross(right / np.linalg.norm(right), forward)
        for camera in self._renderer.scene.camera:
            camera.pos, camera.forward, camera.up = eye, forward, up
            camera.orthographic = 0
            camera.frustum_near, camera.frustum_far = _NEAR, _FAR
            # The frustum at the near plane: rows grow downwards, the frustum's axis upwards.
            camera.frustum_top = _NEAR * cy / fy
            camera.frustum_bottom = -_NEAR * (height - cy) / fy
            camera.frustum_center = _NEAR * (width / 2 - cx) / fx
            camera.frustum_width = _NEAR * width / fx / 2
