"""Images of one environment from a free camera, for videos."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.math import look_at
from embodichain.lab.sim.rendering.appearance import Appearance
from embodichain.lab.sim.rendering.choice import choose_ray_tracing, ray_tracer
from embodichain.lab.sim.rendering.opengl import OpenGLDrawer
from embodichain.lab.sim.rendering.shot import Drawer, Shot

__all__ = ["CameraPose", "Renderer"]

_NEAR, _FAR = 0.02, 50.0  # m


@dataclass(frozen=True)
class CameraPose:
    """Where a pinhole camera is and what it sees, in the convention of OpenCV's intrinsics.

    Attributes:
        eye: world position, m.
        target: the point in the middle of the view, m.
        up: direction that is upwards in the image.
        intrinsics: fx, fy, cx, cy in pixels.
    """

    eye: tuple[float, float, float]
    target: tuple[float, float, float]
    up: tuple[float, float, float]
    intrinsics: tuple[float, float, float, float]


class Renderer:
    """Draws environments off screen, with shadows. Use it from the thread that made it."""

    def __init__(
        self,
        backend: Backend,
        appearance: Appearance,
        width: int,
        height: int,
        enable_rt: bool = False,
        device: str = "cpu",
    ) -> None:
        """Choose what to draw with.

        Args:
            enable_rt: trace rays; without it they are traced where there is no OpenGL.
            device: where rays are traced.

        Raises:
            RenderingUnavailableError: OpenGL without a window is missing, and no ray tracer.
        """
        self._drawer: Drawer
        if choose_ray_tracing(enable_rt):
            self._drawer = ray_tracer(backend, appearance, device, 1, shadows=True)
        else:
            self._drawer = OpenGLDrawer(backend, appearance, shadows=True)
        self._num_envs = backend.num_envs
        self._size = (width, height)
        # One image, to which every environment's row refers.
        self._image = torch.zeros(height, width, 3, dtype=torch.uint8, device=self._drawer.device)

    def render(self, env_id: int, pose: CameraPose) -> np.ndarray:
        """Render one environment: return its image, [height, width, 3] uint8."""
        eye, target, up = (torch.tensor(vector, dtype=torch.float64) for vector in (pose.eye, pose.target, pose.up))
        shot = Shot(
            size=self._size,
            near=_NEAR,
            far=_FAR,
            poses=look_at(eye, target, up).expand(self._num_envs, 4, 4),
            intrinsics=torch.tensor(pose.intrinsics, dtype=torch.float64).expand(self._num_envs, 4),
            mount=None,
            geom_ids=torch.zeros(0, dtype=torch.int32),
            images={"color": self._image.expand(self._num_envs, -1, -1, -1)},
        )
        self._drawer.draw(shot, [env_id])
        return self._image.cpu().numpy().copy()

    def close(self) -> None:
        """Let go of what it draws with."""
        self._drawer.close()
