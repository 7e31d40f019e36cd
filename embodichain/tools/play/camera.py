"""Images of a task's first environment, from where its config looks or from a place that shows it all."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers.record import record_camera_data
from embodichain.lab.sim.sensors import CameraPose, Renderer

_DIRECTION = np.array([-1.0, 1.0, 0.8]) / 2.64**0.5  # from what is seen to the camera
_LEAST_RADIUS = 0.4  # m
_FIELD = 1.07  # focal length in heights of the image: 50 degrees


def config_camera(configs: Iterable[EmbodiedEnvCfg | None]) -> dict[str, object]:
    """Return the parameters of the first recording event in some configs, or an empty dictionary."""
    for cfg in configs:
        for event in {} if cfg is None else cfg.events.values():
            if isinstance(event.func, type) and issubclass(event.func, record_camera_data):
                return dict(event.params)
    return {}


class SceneCamera:
    """Renders images [H, W, 3] uint8 of an environment.

    Args:
        env: the environments, of which the first is seen.
        camera: ``eye``, ``target``, ``up`` and ``intrinsics`` as ``record_camera_data`` takes them; where one is
            missing, a place is chosen from which all bodies are seen.
        size: width and height, pixels, both even.

    Raises:
        RenderingUnavailableError: there is no OpenGL without a window, and no ray tracer.
    """

    def __init__(self, env: EmbodiedEnv, camera: dict[str, object], size: tuple[int, int]) -> None:
        cfg = env.sim.cfg
        self._renderer = Renderer(env.sim.backend, env.sim.appearance, *size, cfg.enable_rt, cfg.render_device)
        self.pose = _pose(env, camera, size)

    def render(self) -> np.ndarray:
        """Return an image of the present state."""
        return self._renderer.render(0, self.pose)

    def close(self) -> None:
        """Release OpenGL."""
        self._renderer.close()


def _pose(env: EmbodiedEnv, camera: dict[str, object], size: tuple[int, int]) -> CameraPose:
    width, height = size
    up = _vector(camera.get("up", (0.0, 0.0, 1.0)))
    focal = _FIELD * height
    intrinsics = (focal, focal, width / 2, height / 2)
    if "eye" in camera and "target" in camera:
        given, taken = camera.get("intrinsics"), camera.get("resolution", (640, 480))
        if given is not None:
            # As many degrees in this image's height as in the recording's.
            scale = height / float(np.asarray(taken)[1])
            fx, fy = (float(f) * scale for f in np.asarray(given)[:2])
            intrinsics = (fx, fy, width / 2, height / 2)
        return CameraPose(_vector(camera["eye"]), _vector(camera["target"]), up, intrinsics)
    places = env.sim.backend.read("xpos")[0, 1:].double().cpu().numpy()  # [bodies, 3], without the world
    low, high = places.min(axis=0), places.max(axis=0)
    centre, radius = (low + high) / 2, max(float(np.linalg.norm(high - low)) / 2, _LEAST_RADIUS)
    return CameraPose(_vector(centre + 2.6 * radius * _DIRECTION), _vector(centre), up, intrinsics)


def _vector(value: object) -> tuple[float, float, float]:
    x, y, z = (float(part) for part in np.asarray(value))
    return x, y, z
