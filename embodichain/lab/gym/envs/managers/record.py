"""Events that record what a camera sees."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from embodichain.lab.gym.envs.managers.base import Functor
from embodichain.lab.gym.envs.managers.cfg import EventCfg, FunctorCfg
from embodichain.lab.sim.sensors import CameraPose, Renderer, RenderingUnavailableError
from embodichain.utils import ConfigError, logger
from embodichain.utils.video import BackgroundVideoWriter, VideoWriter

if TYPE_CHECKING:
    from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv

__all__ = ["record_camera_data", "record_camera_data_async"]


class record_camera_data(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Record videos of environment 0, between the environment's ``start_recording`` and ``stop_recording``.

    Without OpenGL a warning says once what to install, and nothing is recorded.

    Args:
        name: of the camera, part of the file's name.
        resolution: width and height, pixels, both even.
        eye: world position of the camera, m.
        target: the point in the middle of the view, m.
        up: direction that is upwards in the picture.
        intrinsics: fx, fy, cx, cy in pixels; None: 50 degrees of height, centred.
        save_path: folder of the videos; None: the one that ``start_recording`` names.
    """

    _writer_class: type[VideoWriter] = VideoWriter

    def __init__(self, cfg: FunctorCfg, env: EmbodiedEnv) -> None:
        super().__init__(cfg, env)
        self._renderer: Renderer | None = None
        self._writer: VideoWriter | None = None
        self._folder: Path | None = None
        self._label = ""
        self._is_available = True
        width, height = cfg.params.get("resolution", (640, 480))
        if width % 2 or height % 2 or width > 1920 or height > 1080:
            raise ConfigError(f"resolution: even numbers up to 1920x1080 are needed, got {width}x{height}")

    def start(self, folder: Path, label: str) -> None:
        """Record from now on into ``<folder>/<name>_<label>.mp4``."""
        self._folder, self._label = folder, label

    def stop(self) -> Path | None:
        """Finish the video and return its path, or None when no picture was taken."""
        self._folder = None
        if self._writer is None:
            return None
        self._writer.close()
        path, self._writer = self._writer.path, None
        return path

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
        resolution: Sequence[int] = (640, 480),
        eye: Sequence[float] = (-1.4, 1.4, 1.2),
        target: Sequence[float] = (0.0, 0.0, 0.0),
        up: Sequence[float] = (0.0, 0.0, 1.0),
        intrinsics: Sequence[float] | None = None,
        save_path: str | None = None,
    ) -> None:
        """Take a picture, if a recording is going on."""
        if self._folder is None or not self._is_available:
            return
        width, height = resolution
        if self._renderer is None:
            try:
                self._renderer = Renderer(env.sim.backend, width, height)
            except RenderingUnavailableError as error:
                self._is_available = False
                logger.log_warning(f"no video is recorded: {error}")
                return
        if self._writer is None:
            folder = Path(save_path) if save_path is not None else self._folder
            self._writer = self._writer_class(
                folder / f"{name}_{self._label}.mp4", width, height, fps=self._pictures_per_second()
            )
        fx, fy, cx, cy = intrinsics or (1.07 * height, 1.07 * height, width / 2, height / 2)
        pose = CameraPose(_triple(eye), _triple(target), _triple(up), (fx, fy, cx, cy))
        self._writer.write(self._renderer.render(0, pose))

    def _pictures_per_second(self) -> float:
        assert isinstance(self.cfg, EventCfg)
        sim, env = self.env.cfg.sim_cfg, self.env.cfg
        return 1.0 / (sim.physics_dt * env.sim_steps_per_control * self.cfg.interval_step)


class record_camera_data_async(record_camera_data):  # noqa: N801 (named like a function, as configs name it)
    """The same, encoded in the background."""

    _writer_class = BackgroundVideoWriter


def _triple(values: Sequence[float]) -> tuple[float, float, float]:
    x, y, z = values
    return x, y, z
