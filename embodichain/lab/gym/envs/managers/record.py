"""Events that record what a camera sees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import Functor
from embodichain.lab.gym.envs.managers.cfg import EventCfg, FunctorCfg
from embodichain.lab.gym.envs.managers.trajectory import record_trajectory
from embodichain.lab.sim.sensors import CameraPose, Renderer, RenderingUnavailableError
from embodichain.utils import ConfigError, logger
from embodichain.utils.video import BackgroundVideoWriter, VideoWriter

if TYPE_CHECKING:
    from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv

__all__ = ["record_camera_data", "record_camera_data_async", "record_trajectory"]

_RESOLUTION = (640, 480)
_EYE, _TARGET, _UP = (-1.4, 1.4, 1.2), (0.0, 0.0, 0.0), (0.0, 0.0, 1.0)
_SIZES = {"resolution": 2, "eye": 3, "target": 3, "up": 3, "intrinsics": 4}


class record_camera_data(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Record videos of the first environments, between the environment's ``start_recording`` and ``stop_recording``.

    Without OpenGL a warning says once what to install, and nothing is recorded. Where a video cannot be written, a
    warning says so, and everything else goes on.

    Args:
        name: of the camera, part of the file's name.
        resolution: width and height, pixels, both even.
        eye: world position of the camera, m.
        target: the point in the middle of the view, m.
        up: direction that is upwards in the picture.
        intrinsics: fx, fy, cx, cy in pixels; None: 50 degrees of height, centred.
        save_path: folder of the videos; None: the one that ``start_recording`` names.
        max_env_num: how many environments, in a grid of pictures of that resolution.
    """

    _writer_class: type[VideoWriter] = VideoWriter

    def __init__(self, cfg: FunctorCfg, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self._renderer: Renderer | None = None
        self._writer: VideoWriter | None = None
        self._folder: Path | None = None
        self._label = ""
        self._is_available = True
        _check_params(cfg.params, type(self).__name__)

    def start(self, folder: Path, label: str) -> None:
        """Record from now on into ``<folder>/<name>_<label>.mp4``."""
        self._folder, self._label = folder, label

    def stop(self) -> Path | None:
        """Finish the video and return its path, or None when there is none."""
        writer, self._writer, self._folder = self._writer, None, None
        if writer is None:
            return None
        try:
            writer.close()
        except OSError as error:
            logger.log_warning(f"video {writer.path} could not be written: {error}")
            return None
        return writer.path

    def close(self) -> None:
        """Finish the video and let go of OpenGL."""
        self.stop()
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def __call__(
        self,
        env: EmbodiedEnv,
        env_ids: Tensor,
        name: str = "camera",
        resolution: Sequence[int] = _RESOLUTION,
        eye: Sequence[float] = _EYE,
        target: Sequence[float] = _TARGET,
        up: Sequence[float] = _UP,
        intrinsics: Sequence[float] | None = None,
        save_path: str | None = None,
        max_env_num: Annotated[int, Field(ge=1, le=64)] = 1,
    ) -> None:
        """Take a picture, if a recording is going on."""
        if self._folder is None or not self._is_available:
            return
        width, height = resolution
        if self._renderer is None:
            try:
                self._renderer = Renderer(env.sim.backend, env.sim.appearance, width, height)
            except RenderingUnavailableError as error:
                self._is_available = False
                logger.log_warning(f"no video is recorded: {error}")
                return
        fx, fy, cx, cy = intrinsics or (1.07 * height, 1.07 * height, width / 2, height / 2)
        pose = CameraPose(_triple(eye), _triple(target), _triple(up), (fx, fy, cx, cy))
        picture = _grid([self._renderer.render(i, pose) for i in range(min(max_env_num, env.num_envs))])
        path = (self._folder if save_path is None else Path(save_path)) / f"{name}_{self._label}.mp4"
        try:
            if self._writer is None:
                height, width, _ = picture.shape
                self._writer = self._writer_class(path, width, height, fps=self._pictures_per_second())
            self._writer.write(picture)
        except OSError as error:
            logger.log_warning(f"video {path} could not be written: {error}")
            self._writer = self._folder = None  # until the next recording

    def _pictures_per_second(self) -> float:
        assert isinstance(self.cfg, EventCfg)
        sim, env = self.env.cfg.sim_cfg, self.env.cfg
        return 1.0 / (sim.physics_dt * env.sim_steps_per_control * self.cfg.interval_step)


class record_camera_data_async(record_camera_data):  # noqa: N801 (named like a function, as configs name it)
    """The same, encoded in the background."""

    _writer_class = BackgroundVideoWriter


def _check_params(params: Mapping[str, Any], place: str) -> None:
    """Check the numbers of a view before anything runs.

    Raises:
        ConfigError: there are too few or too many, or they make no picture.
    """
    given = {key: params[key] for key in _SIZES if key in params and (key, params[key]) != ("intrinsics", None)}
    for key, value in given.items():
        if not _is_vector(value, _SIZES[key]):
            raise ConfigError(f"{place}: {key}: {_SIZES[key]} numbers are needed, got {value!r}")
    width, height = given.get("resolution", _RESOLUTION)
    if not (_is_even(width, 1920) and _is_even(height, 1080)):
        raise ConfigError(f"{place}: resolution: even numbers up to 1920x1080 are needed, got {width}x{height}")
    if min(given.get("intrinsics", (1, 1))[:2]) <= 0:
        raise ConfigError(f"{place}: intrinsics: fx and fy must be positive, got {given['intrinsics']!r}")
    eye, target, up = given.get("eye", _EYE), given.get("target", _TARGET), given.get("up", _UP)
    if not np.cross(np.subtract(target, eye), up).any():
        raise ConfigError(
            f"{place}: eye, target, up: the view's direction must not be zero or along up, got {eye}, {target}, {up}"
        )


def _is_vector(value: Any, size: int) -> bool:
    is_list = isinstance(value, (list, tuple)) and len(value) == size
    return is_list and all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in value)


def _is_even(pixels: float, highest: int) -> bool:
    return pixels % 2 == 0 and 0 < pixels <= highest


def _grid(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Return pictures [H, W, 3] in a grid as square as can be; black where there is none."""
    columns = math.ceil(math.sqrt(len(pictures)))
    height, width, _ = pictures[0].shape
    grid = np.zeros((math.ceil(len(pictures) / columns) * height, columns * width, 3), dtype=np.uint8)
    for i, picture in enumerate(pictures):
        row, column = divmod(i, columns)
        grid[row * height : (row + 1) * height, column * width : (column + 1) * width] = picture
    return grid


def _triple(values: Sequence[float]) -> tuple[float, float, float]:
    x, y, z = values
    return x, y, z
