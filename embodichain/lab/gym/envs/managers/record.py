"""Events that record videos."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers import types
from embodichain.lab.gym.envs.managers.base import Functor, TermEnv
from embodichain.lab.gym.envs.managers.cfg import EventCfg, FunctorCfg
from embodichain.lab.sim.objects import Articulation, RigidObject, SceneBody
from embodichain.lab.sim.rendering.framing import frame
from embodichain.lab.sim.rendering.renderer import CameraPose, Renderer
from embodichain.utils import logger, reason_of, video
from embodichain.utils.files import FileName, SavePath

__all__ = ["record_camera_data", "record_camera_data_async"]

_RESOLUTION = (640, 480)
_MOST_FRAMES = 250  # of a video, unless its config says another number
_TARGET, _UP = (0.0, 0.0, 0.0), (0.0, 0.0, 1.0)
_HOLD = 0.5  # s that an episode's last image stays
_COLOURS = {"success": (120, 220, 130), "failure": (245, 120, 110)}
_FIELD = 1.07  # focal length in heights of the image: 50 degrees

# The encoder needs even numbers; the renderer has this limit.
Resolution = tuple[
    Annotated[int, Field(gt=0, le=1920, multiple_of=2)], Annotated[int, Field(gt=0, le=1080, multiple_of=2)]
]
Intrinsics = tuple[PositiveFloat, PositiveFloat, float, float]


class VideoEvent(Functor):
    """An interval event that adds images to a video, after each step and of the first state of an episode."""

    is_global, only_reads = True, True
    recording: "Recording"

    @override
    def shows_first_state(self) -> bool:
        return self.recording.video is not None and self.recording.video.begins()

    @override
    def after_rewards(self, reward: Tensor, done: Tensor, success: Tensor) -> None:
        self.recording.add_step(reward, done, success)

    @override
    def state_dict(self) -> dict[str, Any]:
        return {}  # a video ends with its process


class record_camera_data(VideoEvent):  # noqa: N801 (named like a function, as configs name it)
    """Record videos of the first environments, between the environment's ``start_recording`` and ``stop_recording``.

    An image shows the state after a control step, before any reset, or the first state of an episode. See
    :class:`EpisodeVideo` for captions and the ends of episodes.

    Without OpenGL or a ray tracer a warning names the packages, and nothing is recorded. If a video cannot be written,
    a warning is logged and the run continues.

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
        caption: write episode, time, return and outcome over each image, and the environment's instruction under it, if
            its task has one.
        follow_uid: an entity that the camera moves with, horizontally; eye and target are relative to its position.
    """

    def __init__(self, cfg: FunctorCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        self.recording = Recording()
        self._view: View | None = None

    @classmethod
    @override
    def check_params(cls, params: Mapping[str, Any]) -> list[str]:
        eye, target, up = params.get("eye"), params.get("target", _TARGET), params.get("up", _UP)
        if eye is None or np.cross(np.subtract(target, eye), up).any():
            return []
        return [f"eye: the view's direction must not be zero or along up, got {eye} with target {target}, up {up}"]

    def start(self, folder: Path, label: str, num_episodes: float = math.inf) -> None:
        """Record the first ``num_episodes`` episodes from now on into ``<folder>/<name>_<label>.mp4``."""
        params = self.cfg.params
        folder = self.env.output.place(params["save_path"]) if params.get("save_path") else folder
        assert isinstance(self.cfg, EventCfg)
        assert isinstance(self.cfg.interval_step, int)  # since the event is global
        path, period = folder / f"{params.get('name', 'camera')}_{label}.mp4", self.env.step_dt * self.cfg.interval_step
        options = {"is_captioned": params.get("caption", True), "max_frames": params.get("max_frames", _MOST_FRAMES)}
        options["num_episodes"] = num_episodes
        count = int(min(params.get("max_env_num", 1), num_episodes))
        self.recording.start(EpisodeVideo(path, self.env, 1.0 / period, count, **options))

    def close(self) -> None:
        """Finish the video and free the renderer."""
        self.recording.stop()
        if self._view is not None:
            self._view.close()
            self._view = None

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
        caption: bool = True,
        follow_uid: str | None = None,
    ) -> None:
        """Record one image, if a recording is active."""

        def render(env_id: int) -> np.ndarray:
            if self._view is None:
                params: dict[str, Any] = {"eye": eye, "target": target, "up": up, "follow_uid": follow_uid}
                params |= {"resolution": resolution, "intrinsics": intrinsics}
                self._view = View(env, resolution, params)
            return self._view.render(env_id)

        self.recording.add(render)


class record_camera_data_async(record_camera_data):  # noqa: N801 (named like a function, as configs name it)
    """The same recorder by its other name: both encode in the background."""


def recorders_in(functors: Iterable[object]) -> list[record_camera_data]:
    """Return the recording events among some functors."""
    return [functor for functor in functors if isinstance(functor, record_camera_data)]


class Recording:
    """Videos, one after the other; what fails is a warning, since a training does not depend on its images."""

    def __init__(self) -> None:
        self.video: EpisodeVideo | None = None
        """The video that is being recorded; None: none is."""
        self.footage = video.Footage()
        """Images of the recording that began last."""

    def start(self, episodes: "EpisodeVideo") -> None:
        """Add images to a video from now on."""
        self.video, self.footage = episodes, video.Footage()

    def add_step(self, reward: Tensor, done: Tensor, success: Tensor) -> None:
        """Add the results [N] of a control step, if something is recorded."""
        if self.video is not None:
            self.video.add_step(reward, done, success)

    def add(self, render: Callable[[int], np.ndarray]) -> None:
        """Add an image, as :meth:`EpisodeVideo.add`, if something is recorded."""
        if self.video is not None and not self.video.is_full:
            with self._timed():
                self.video.add(render)
                self.footage += video.Footage(1)

    def stop(self) -> Path | None:
        """Finish the video and return its path, or None when there is none."""
        path, last = None, self.video
        with self._timed():
            path = None if last is None else last.close()
        self.video = None
        return path

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Add the block's time to the footage; after an error of rendering or writing nothing is recorded."""
        start, last = time.perf_counter(), self.video
        try:
            yield
        except (RuntimeError, OSError, ValueError) as error:
            place = f"{last.path}: " if last is not None and isinstance(error, OSError) else ""
            logger.warn_once(f"no video is recorded: {place}{reason_of(error)}")
            self.video = None
        self.footage += video.Footage(seconds=time.perf_counter() - start)


class View:
    """A camera that renders each environment, by the parameters of :class:`record_camera_data`.

    Its pose ``fixed`` is relative to the position of the entity that it moves with, if there is one.
    """

    def __init__(self, env: TermEnv, size: tuple[int, int], params: Mapping[str, Any] | None = None) -> None:
        """Place the camera; its intrinsics are for the ``resolution``, and keep their angle of view in ``size``."""
        (width, height), cfg, params = size, env.sim.cfg, params or {}
        self._renderer = Renderer(env.sim.backend, env.sim.appearance, width, height, cfg.enable_rt, cfg.render_device)
        eye, up = params.get("eye"), params.get("up", _UP)
        lens = (_FIELD * height, _FIELD * height, width / 2, height / 2)
        if (own := params.get("intrinsics")) is not None:
            own_size = params.get("resolution", _RESOLUTION)
            scale = height / own_size[1]
            cx, cy = (size[i] / 2 + scale * (own[2 + i] - own_size[i] / 2) for i in range(2))
            lens = (scale * own[0], scale * own[1], cx, cy)
        self.env = env
        self._uid = params.get("follow_uid") or (env.followed_uid if eye is None else None)
        if eye is not None:
            self.fixed = CameraPose(eye, params.get("target", _TARGET), up, lens)
            return
        followed = None if self._uid is None else self._asset()
        bodies = followed.base.bodies if isinstance(followed, Articulation) else []
        x, y = self._place(0)
        self.fixed = frame(env.sim.backend, env.sim.appearance, bodies, up, lens).shifted(-x, -y)

    def render(self, env_id: int = 0) -> np.ndarray:
        """Return an image [H, W, 3] uint8 of an environment's present state."""
        return self._renderer.render(env_id, self.pose(env_id))

    def close(self) -> None:
        """Free the renderer."""
        self._renderer.close()

    def pose(self, env_id: int) -> CameraPose:
        """Return the camera's present pose in one environment."""
        return self.fixed.shifted(*self._place(env_id))

    def _asset(self) -> RigidObject | Articulation | SceneBody:
        return self.env.sim.get_asset(str(self._uid))

    def _place(self, env_id: int) -> tuple[float, float]:
        """Return the horizontal position of the entity to move with, m."""
        if self._uid is None:
            return 0.0, 0.0
        x, y = self._asset().get_local_pose()[env_id, :2].tolist()
        return x, y


@dataclass
class _Cell:
    """An environment's place in a montage: its present episode, and the last image."""

    number: int = -1
    total: float = 0.0
    outcome: str = ""
    is_ending: bool = False
    left: int = 0
    image: np.ndarray | None = None


class EpisodeVideo:
    """A video of the first K environments in a grid, with captions; an episode's last image stays for half a second.

    Meanwhile the other environments of the grid continue; where all of them wait, the video is longer.

    Args:
        path: path of the file, which is created with the first image.
        env: environments of ours, or another library's.
        fps: images a second.
        count: K, if there are as many environments.
        columns: columns of the grid; None: as many as rows, or one more.
        num_episodes: number of the first episode that is not shown: its environment keeps its last image.
        is_captioned: write episode, time, return and outcome over each image, and the instruction under it.
        max_frames: number of images after which the video is full; None: it never is.
    """

    def __init__(
        self,
        path: Path,
        env: Any,
        fps: float,
        count: int = 1,
        columns: int | None = None,
        num_episodes: float = math.inf,
        is_captioned: bool = True,
        max_frames: int | None = None,
    ) -> None:
        self.path, self._env, self._fps = path, env, fps
        self.frames = 0  # number of times that images were added
        self._cells = [_Cell() for _ in range(min(count, env.num_envs))]
        self._columns = columns or math.ceil(math.sqrt(len(self._cells)))
        self._num_episodes, self._is_captioned, self._max_frames = num_episodes, is_captioned, max_frames
        self._writer: video.VideoWriter | None = None

    @property
    def is_full(self) -> bool:
        """Whether it has its last image."""
        return self.frames == self._max_frames or all(cell.number >= self._num_episodes for cell in self._cells)

    def begins(self) -> bool:
        """Return whether an episode begins in all K environments."""
        return bool((self._env.elapsed_steps[: len(self._cells)] == 0).all())

    def add_step(self, reward: Tensor, done: Tensor, success: Tensor) -> None:
        """Add the results [N] of a control step."""
        self._find_new_episodes()
        results = (values[: len(self._cells)].tolist() for values in (reward, done, success))
        for cell, own, ends, succeeds in zip(self._cells, *results, strict=True):
            if cell.outcome:  # it waits for the end of a chunk of actions
                continue
            cell.total += own
            if ends:
                outcome = "success" if succeeds else "failure"
                cell.is_ending, cell.outcome = True, outcome if self._env.knows_success() else "ended"

    def add(self, render: Callable[[int], np.ndarray]) -> None:
        """Add the images [H, W, 3] uint8, of even sizes, that ``render`` returns of environments by their numbers."""
        self._find_new_episodes()
        for i, cell in enumerate(self._cells):
            if cell.left:
                cell.left -= 1
            elif cell.image is None or cell.number < self._num_episodes:
                cell.image = self._captioned(i, cell, render(i))
                cell.left, cell.is_ending = round(_HOLD * self._fps) if cell.is_ending else 0, False
        image = _grid([cell.image for cell in self._cells if cell.image is not None], self._columns)
        if self._writer is None:
            self._writer = video.VideoWriter(self.path, image.shape[1], image.shape[0], self._fps)
        self._writer.write(image)
        self.frames += 1
        if all(cell.left or cell.number >= self._num_episodes for cell in self._cells):
            for _ in range(max(cell.left for cell in self._cells)):
                self._writer.write(image)
            for cell in self._cells:
                cell.left = 0

    def close(self) -> Path | None:
        """Finish the file and return its path, None without images; an OSError if it could not be written."""
        writer, self._writer = self._writer, None
        if writer is None:
            return None
        writer.close()
        return self.path

    def _find_new_episodes(self) -> None:
        random = self._env.random
        numbers = random.stream_ids if random.enumerates_episodes else random.episode
        for cell, number in zip(self._cells, numbers.tolist(), strict=False):
            if cell.number != number:
                cell.number, cell.total, cell.outcome, cell.is_ending = number, 0.0, "", False

    def _captioned(self, i: int, cell: _Cell, image: np.ndarray) -> np.ndarray:
        if not self._is_captioned:
            return image
        steps, step_dt = int(self._env.elapsed_steps[i]), self._env.step_dt
        clock = f"step {steps}" if step_dt is None else f"{steps * step_dt:.2f} s"
        text = f"episode {cell.number}   {clock}   return {cell.total:.2f}   {cell.outcome}"
        image = video.draw_caption(image, text, _COLOURS.get(cell.outcome, video.TEXT_COLOUR), at_top=True)
        instruction = self._env.instructions()[i] if hasattr(self._env, "instructions") else ""
        return video.draw_caption(image, instruction) if instruction else image


def _grid(images: Sequence[np.ndarray], columns: int) -> np.ndarray:
    """Return images [H, W, 3] in a grid, row by row; empty cells are black."""
    rows = math.ceil(len(images) / columns)
    height, width, _ = images[0].shape
    cells = np.zeros((rows * columns, height, width, 3), dtype=np.uint8)
    cells[: len(images)] = images
    return cells.reshape(rows, columns, height, width, 3).swapaxes(1, 2).reshape(rows * height, columns * width, 3)
