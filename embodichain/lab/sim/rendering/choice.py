"""The choice of a renderer: OpenGL, or ray tracing where it is configured or OpenGL is missing."""

from __future__ import annotations

import functools

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.backend.choice import has_warp, import_for_warp
from embodichain.lab.sim.rendering.appearance import Appearance
from embodichain.lab.sim.rendering.opengl import opengl_problem
from embodichain.lab.sim.rendering.shot import Drawer, RenderingUnavailableError
from embodichain.lab.sim.rendering.threads import RenderThreads
from embodichain.utils import logger

__all__ = ["choose_ray_tracing", "make_drawer", "ray_tracer"]

_HELP = "pip install 'embodichain-mujoco[raytrace]'"


def make_drawer(backend: Backend, appearance: Appearance, num_threads: int, enable_rt: bool, device: str) -> Drawer:
    """Return what draws the cameras' images.

    Args:
        enable_rt: trace rays, with shadows; without it rays are traced, without shadows, where there is no OpenGL.
        device: where rays are traced.

    Raises:
        RenderingUnavailableError: there is nothing to draw with; the message says what to install.
    """
    if choose_ray_tracing(enable_rt):
        return ray_tracer(backend, appearance, device, num_threads, shadows=enable_rt)
    return RenderThreads(backend, appearance, num_threads)


def choose_ray_tracing(enable_rt: bool) -> bool:
    """Return whether rays are to be traced: where it is asked for, or OpenGL is not there and the extra is.

    Raises:
        RenderingUnavailableError: neither is there; the message says what to install.
    """
    if enable_rt:
        return True
    problem = opengl_problem()
    if problem is None:
        return False
    if not has_warp():
        raise RenderingUnavailableError(f"{problem}; or let rays be traced instead: {_HELP}") from problem
    _say_once("OpenGL without a window is not there: images are ray-traced, which is slower")
    return True


def ray_tracer(backend: Backend, appearance: Appearance, device: str, num_threads: int, shadows: bool) -> Drawer:
    """Return a ray tracer.

    Raises:
        RenderingUnavailableError: the extra is not installed, or the scene has what it cannot draw.
    """
    try:
        module = import_for_warp("embodichain.lab.sim.rendering.ray_tracer")
    except ModuleNotFoundError as error:
        raise RenderingUnavailableError(f"ray tracing needs {error.name}: {_HELP}") from error
    tracer: Drawer = module.RayTracer(backend, appearance, device, num_threads, shadows)
    return tracer


@functools.cache
def _say_once(message: str) -> None:
    logger.log_warning(message)
