"""Choice of the renderer (OpenGL, or ray tracing), and images of one environment from a free camera, for videos.

All of it raises a RenderingUnavailableError where no renderer is installed, or none supports the scene.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import numpy as np
import torch

from embodichain.lab.sim.backend import Backend, has_warp, import_for_warp
from embodichain.lab.sim.math import look_at
from embodichain.lab.sim.rendering.opengl import OpenGLDrawer, RenderThreads, opengl_problem
from embodichain.lab.sim.rendering.shot import Appearance, Drawer, RenderingUnavailableError, Shot
from embodichain.utils import install_extra, logger

_NEAR, _FAR = 0.02, 50.0  # m


@dataclass(frozen=True)
class CameraPose:
    """Pose and intrinsics of a pinhole camera, in OpenCV's convention.

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

    def shifted(self, x: float, y: float) -> CameraPose:
        """Return the pose moved horizontally by metres, for a camera that follows a body."""
        eye, target = ((place[0] + x, place[1] + y, place[2]) for place in (self.eye, self.target))
        return replace(self, eye=eye, target=target)


class Renderer:
    """Renders environments off screen, with shadows. Use it from the thread that created it."""

    def __init__(
        self,
        backend: Backend,
        appearance: Appearance,
        width: int,
        height: int,
        enable_rt: bool = False,
        device: str = "cpu",
    ) -> None:
        """Choose OpenGL or ray tracing.

        Args:
            enable_rt: trace rays, also where OpenGL is available.
            device: ray tracer's device.
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
        """Free the OpenGL context, or the ray tracer's threads."""
        self._drawer.close()


def make_drawer(backend: Backend, appearance: Appearance, num_threads: int, enable_rt: bool, device: str) -> Drawer:
    """Return the renderer of the cameras that are sensors.

    Args:
        enable_rt: trace rays, with shadows; else rays are traced only without OpenGL, and without shadows.
        device: ray tracer's device.
    """
    if choose_ray_tracing(enable_rt):
        return ray_tracer(backend, appearance, device, num_threads, shadows=enable_rt)
    return RenderThreads(backend, appearance, num_threads)


def choose_ray_tracing(enable_rt: bool) -> bool:
    """Return whether to trace rays: if requested, or if OpenGL is missing and the extra is installed."""
    if enable_rt:
        return True
    problem = opengl_problem()
    if problem is None:
        return False
    if not has_warp():
        raise RenderingUnavailableError(f"{problem}; or use ray tracing: {install_extra('raytrace')}") from problem
    _say_once("off-screen OpenGL is missing: images are ray-traced, which is slower")
    return True


def ray_tracer(backend: Backend, appearance: Appearance, device: str, num_threads: int, shadows: bool) -> Drawer:
    """Return a ray tracer."""
    try:
        module = import_for_warp("embodichain.lab.sim.rendering.ray_tracer")
    except ModuleNotFoundError as error:
        raise RenderingUnavailableError(f"ray tracing needs {error.name}: {install_extra('raytrace')}") from error
    tracer: Drawer = module.RayTracer(backend, appearance, device, num_threads, shadows)
    return tracer


@functools.cache
def _say_once(message: str) -> None:
    logger.log_warning(message)
