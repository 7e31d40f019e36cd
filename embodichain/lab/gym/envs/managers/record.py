"""Events that record videos."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers import types
from embodichain.lab.gym.envs.managers.base import Functor, TermEnv
from embodichain.lab.gym.envs.managers.cfg import EventCfg, FunctorCfg
from embodichain.lab.sim.objects import Articulation, Marker, RigidObject, SceneBody
from embodichain.lab.sim.rendering.framing import frame
from embodichain.lab.sim.rendering.renderer import CameraPose, Renderer, RenderingUnavailableError
from embodichain.utils import logger, reason_of, video
from embodichain.utils.files import FileName, SavePath

__all__ = ["record_camera_data", "record_camera_data_async"]

_RESOLUTION = (640, 480)
_MOST_FRAMES = 250  # of a video, unless its config says another number
_TARGET, _UP = (0.0, 0.0, 0.0), (0.0, 0.0, 1.0)
_FIELD = 1.07  # focal length in heights of the image: 50 degrees

# The encoder needs even numbers; the renderer has this limit.
Resolution = tuple[
    Annotated[int, Field(gt=0, le=1920, multiple_of=2)], Annotated[int, Field(gt=0, le=1080, multiple_of=2)]
]
Intrinsics = tuple[PositiveFloat, PositiveFloat, float, float]


class record_camera_data(Functor):  # noqa: N801 (named like a function, as configs name it)
    """Record videos of the first environments, between the environment's ``start_recording`` and ``stop_recording``.

    An image shows the state after a control step, before any reset, or the first state of an episode.

    Without OpenGL or a ray tracer one warning names the packages, and nothing is recorded. If a video cannot be
    written, a warning is logged and the run continues.

    Args:
        name: camera's name, part of the file's name.
        resolution: width and height, pixels, both even.
        eye: world position of the camera, m; None: as near as the first image's scene allows, or its robot or body that
            moves freely, with which the camera then moves.
        target: the point in the middle of the view, m, of a camera with ``eye``.
        up: direction that is upwards in the image.
        intrinsics: fx, fy, cx, cy in pixels; None: 50 degrees of height, centred.
        save_path: folder of the videos inside the run's folder; None: ``start_recording``'s.
        max_env_num: number of environments, in a grid of images of that resolution.
        max_frames: images after which a video is complete, since rendering takes longer than the simulation; None: as
            long as the recording.
        caption: write the environment's instruction under each image, if its task has one.
        follow_uid: an entity that the camera moves with, horizontally; eye and target are relative to its position.
    """

    is_global, only_reads = True, True

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        self._renderer: Renderer | None = None
        self._view: View | None = None
        self._writer: video.VideoWriter | None = None
        self._folder: Path | None = None
        self._label = ""
        self._is_available = True
        self.footage = video.Footage()  # of the recording that began last

    @classmethod
    @override
    def check_params(cls, params: Mapping[str, Any]) -> list[str]:
        eye, target, up = params["eye"], params["target"], params["up"]
        if eye is None or np.cross(np.subtract(target, eye), up).any():
            return []
        return [f"eye: the view's direction must not be zero or along up, got {eye} with target {target}, up {up}"]

    def start(self, folder: Path, label: str) -> None:
        """Record from now on into ``<folder>/<name>_<label>.mp4``."""
        self._folder, self._label, self.footage = folder, label, video.Footage()

    def stop(self) -> Path | None:
        """Finish the video and return its path, or None when there is none."""
        writer, self._writer, self._folder = self._writer, None, None
        if writer is None:
            return None
        start = time.perf_counter()
        try:
            writer.close()
        except OSError as error:
            logger.log_warning(f"video {writer.path} could not be written: {reason_of(error)}")
            return None
        self.footage += video.Footage(seconds=time.perf_counter() - start)
        return writer.path

    @override
    def shows_first_state(self) -> bool:
        shown = self.cfg.params.get("max_env_num", 1)
        return self._folder is not None and bool((self.env.elapsed_steps[:shown] == 0).any())

    @override
    def state_dict(self) -> dict[str, Any]:
        return {}  # a video ends with its process

    def close(self) -> None:
        """Finish the video and free the renderer."""
        self.stop()
        if self._renderer is not None:
            self._renderer.close()
            self._renderer = None

    def __call__(
        self,
        env: TermEnv,
        env_ids: Tensor,
        name: FileName = "camera",
        resolution: Resolution = _RESOLUTION,
        eye: types.Vec3 | None = None,
        target: types.Vec3 = _TARGET,
        up: types.Vec3 = _UP,
        intrinsics: Intrinsics | None = None,
        save_path: SavePath | None = None,
        max_env_num: Annotated[int, Field(ge=1, le=64)] = 1,
        max_frames: PositiveInt | None = _MOST_FRAMES,
        caption: bool = False,
        follow_uid: str | None = None,
    ) -> None:
        """Record one image, if a recording is active."""
        if self._folder is None or not self._is_available or self.footage.frames == max_frames:
            return
        start = time.perf_counter()
        width, height = resolution
        if self._renderer is None:
            try:
                cfg = env.sim.cfg
                self._renderer = Renderer(
                    env.sim.backend, env.sim.appearance, width, height, cfg.enable_rt, cfg.render_device
                )
            except RenderingUnavailableError as error:
                self._is_available = False
                logger.log_warning(f"no video is recorded: {error}")
                return
        if self._view is None:
            self._view = View(env, resolution, eye, target, up, intrinsics, follow_uid)
        images = [self._renderer.render(i, self._view.pose(i)) for i in range(min(max_env_num, env.num_envs))]
        if caption:
            texts = env.instructions()
            images = [video.draw_caption(p, texts[i]) if texts[i] else p for i, p in enumerate(images)]
        image = _grid(images)
        folder = self._folder if save_path is None else env.output.place(save_path)
        path = folder / f"{name}_{self._label}.mp4"
        try:
            if self._writer is None:
                height, width, _ = image.shape
                self._writer = video.VideoWriter(path, width, height, fps=self._fps())
            self._writer.write(image)
            self.footage += video.Footage(1, time.perf_counter() - start)
        except OSError as error:
            logger.log_warning(f"video {path} could not be written: {reason_of(error)}")
            self._writer = self._folder = None  # until the next recording

    def _fps(self) -> float:
        assert isinstance(self.cfg, EventCfg)
        assert isinstance(self.cfg.interval_step, int)  # since the event is global
        return 1.0 / (self.env.step_dt * self.cfg.interval_step)


class record_camera_data_async(record_camera_data):  # noqa: N801 (named like a function, as configs name it)
    """The same recorder by its other name: both encode in the background."""


def recorders_in(functors: Iterable[object]) -> list[record_camera_data]:
    """Return the recording events among some functors."""
    return [functor for functor in functors if isinstance(functor, record_camera_data)]


class View:
    """A camera's pose in each environment, by the parameters of :class:`record_camera_data`.

    Attributes:
        fixed: the pose; relative to the position of the entity that the camera moves with, if there is one.
    """

    def __init__(
        self,
        env: TermEnv,
        size: tuple[int, int],
        eye: types.Vec3 | None = None,
        target: types.Vec3 = _TARGET,
        up: types.Vec3 = _UP,
        intrinsics: Intrinsics | None = None,
        follow_uid: str | None = None,
    ) -> None:
        width, height = size
        lens = intrinsics or (_FIELD * height, _FIELD * height, width / 2, height / 2)
        self.env = env
        self._uid = follow_uid or (env.followed_uid if eye is None else None)
        if eye is not None:
            self.fixed = CameraPose(eye, target, up, lens)
            return
        followed = None if self._uid is None else self._asset()
        bodies = followed.base.bodies if isinstance(followed, Articulation) else []
        x, y = self._place(0)
        self.fixed = frame(env.sim.backend, env.sim.appearance, bodies, up, lens).shifted(-x, -y)

    def pose(self, env_id: int) -> CameraPose:
        """Return the camera's present pose in one environment."""
        return self.fixed.shifted(*self._place(env_id))

    def _asset(self) -> RigidObject | Articulation | SceneBody:
        asset = self.env.sim.get_asset(str(self._uid))
        assert not isinstance(asset, Marker)
        return asset

    def _place(self, env_id: int) -> tuple[float, float]:
        """Return the horizontal position of the entity to move with, m."""
        if self._uid is None:
            return 0.0, 0.0
        x, y = self._asset().get_local_pose()[env_id, :2].tolist()
        return x, y


def _grid(images: Sequence[np.ndarray]) -> np.ndarray:
    """Return images [H, W, 3] in a nearly square grid; empty cells are black."""
    columns = math.ceil(math.sqrt(len(images)))
    rows = math.ceil(len(images) / columns)
    height, width, _ = images[0].shape
    cells = np.zeros((rows * columns, height, width, 3), dtype=np.uint8)
    cells[: len(images)] = images
    return cells.reshape(rows, columns, height, width, 3).swapaxes(1, 2).reshape(rows * height, columns * width, 3)
