"""Threads that draw the environments' images. Shapes: N environments, H height, W width of an image."""

from __future__ import annotations

import copy
import queue
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import mujoco
import numpy as np

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.sensors.appearance import Appearance
from embodichain.lab.sim.sensors.renderer import RenderingUnavailableError, make_renderer, place_camera

__all__ = ["DrawingThreads", "Mount", "Shot"]

_SHADOW, _REFLECTION = int(mujoco.mjtRndFlag.mjRND_SHADOW), int(mujoco.mjtRndFlag.mjRND_REFLECTION)


@dataclass(frozen=True)
class Mount:
    """What carries a camera.

    Attributes:
        kind: of thing in the model.
        index: its id there, the same in the model for the physics.
    """

    kind: str
    index: int

    def pose(self, data: mujoco.MjData) -> tuple[np.ndarray, np.ndarray]:
        """Return its world position [3] and rotation [3, 3]."""
        if self.kind == "site":
            return data.site_xpos[self.index], data.site_xmat[self.index].reshape(3, 3)
        return data.xpos[self.index], data.xmat[self.index].reshape(3, 3)


@dataclass
class Shot:
    """What to draw, and where to.

    Attributes:
        size: width and height.
        near, far: the range that is seen, m.
        poses: [N, 4, 4] of the camera in its mount's frame; it looks along -z, +y is up.
        intrinsics: [N, 4] fx, fy, cx, cy, pixels.
        mount: what carries it; None: the world.
        geom_ids: [number of geoms + 1] int32, the mask's number of each geom, last of nothing.
        images: to be drawn: ``color`` [N, H, W, 3] uint8, ``depth`` [N, H, W] float32 m, ``mask`` [N, H, W] int32.
    """

    size: tuple[int, int]
    near: float
    far: float
    poses: np.ndarray
    intrinsics: np.ndarray
    mount: Mount | None
    geom_ids: np.ndarray
    images: dict[str, np.ndarray] = field(default_factory=dict)


class DrawingThreads:
    """Draws shots of many environments on several threads, each with an OpenGL context and a model of its own."""

    def __init__(self, backend: Backend, appearance: Appearance, num_threads: int) -> None:
        """Start the threads.

        Args:
            backend: the simulation to draw.
            appearance: what its environments look like.
            num_threads: how many.
        """
        self._queues: list[queue.SimpleQueue[_Job | None]] = [queue.SimpleQueue() for _ in range(num_threads)]
        # The thread must not keep this object alive, so that it can be told when nobody needs it any more.
        threads = [
            threading.Thread(target=_work, args=(jobs, backend, appearance), name=f"drawing-{i}", daemon=True)
            for i, jobs in enumerate(self._queues)
        ]
        for thread in threads:
            thread.start()
        self._finalizer = weakref.finalize(self, _stop, self._queues, threads)

    def draw(self, shot: Shot, env_ids: Sequence[int]) -> None:
        """Draw a shot of some environments into its images.

        Raises:
            RenderingUnavailableError: there is no OpenGL without a window.
        """
        jobs = [_Job(shot, env_ids[i :: len(self._queues)]) for i in range(len(self._queues))]
        for todo, job in zip(self._queues, jobs, strict=True):
            todo.put(job)
        for job in jobs:
            job.done.result()

    def close(self) -> None:
        """Let go of OpenGL, and end the threads."""
        self._finalizer()


@dataclass
class _Job:
    shot: Shot
    env_ids: Sequence[int]
    done: Future[None] = field(default_factory=Future)


class _Drawer:
    """What one thread draws with."""

    def __init__(self, backend: Backend, appearance: Appearance) -> None:
        self._backend = backend
        self._appearance = appearance
        self._model = copy.copy(backend.visual_model)
        self._data = mujoco.MjData(self._model)
        self._renderers: dict[tuple[int, int], mujoco.Renderer] = {}

    def draw(self, shot: Shot, env_id: int) -> None:
        renderer = self._renderer(shot.size)
        self._appearance.load(env_id, self._model)
        self._backend.load_render_data(env_id, self._data)
        # The renderer reads these when it turns its buffer into metres.
        extent = self._model.stat.extent
        self._model.vis.map.znear, self._model.vis.map.zfar = shot.near / extent, shot.far / extent
        renderer.update_scene(self._data)
        pos, rotation = shot.poses[env_id, :3, 3], shot.poses[env_id, :3, :3]
        if shot.mount is not None:
            base, turn = shot.mount.pose(self._data)
            pos, rotation = base + turn @ pos, turn @ rotation
        forward, up = -rotation[:, 2], rotation[:, 1]
        place_camera(renderer, pos, forward, up, shot.intrinsics[env_id], shot.size, shot.near, shot.far)
        if "color" in shot.images:
            renderer.render(out=shot.images["color"][env_id])
        if "depth" in shot.images:
            renderer.enable_depth_rendering()
            renderer.render(out=shot.images["depth"][env_id])
            renderer.disable_depth_rendering()
        if "mask" in shot.images:
            renderer.enable_segmentation_rendering()
            objects = renderer.render()
            renderer.disable_segmentation_rendering()
            is_geom = objects[..., 1] == int(mujoco.mjtObj.mjOBJ_GEOM)
            shot.images["mask"][env_id] = shot.geom_ids[np.where(is_geom, objects[..., 0], -1)]

    def close(self) -> None:
        for renderer in self._renderers.values():
            renderer.close()

    def _renderer(self, size: tuple[int, int]) -> mujoco.Renderer:
        if size not in self._renderers:
            width, height = size
            visual = self._model.vis
            visual.global_.offwidth, visual.global_.offheight = width, height
            visual.quality.shadowsize = 0
            # Round shapes are made of so many flat ones; on a processor, corners cost more than pixels.
            visual.quality.numslices = min(28, max(12, max(size) // 10))
            visual.quality.numstacks = visual.quality.numslices // 2 - 1
            renderer = make_renderer(self._model, width, height)
            renderer.scene.flags[_SHADOW] = renderer.scene.flags[_REFLECTION] = 0
            self._renderers[size] = renderer
        return self._renderers[size]


def _work(jobs: queue.SimpleQueue[_Job | None], backend: Backend, appearance: Appearance) -> None:
    drawer = _Drawer(backend, appearance)
    while (job := jobs.get()) is not None:
        try:
            for env_id in job.env_ids:
                drawer.draw(job.shot, env_id)
            job.done.set_result(None)
        except RenderingUnavailableError as error:
            job.done.set_exception(error)
        finally:
            job.done.cancel()  # does nothing to what is done; whoever waits must not wait for a thread that has failed
    drawer.close()


def _stop(queues: list[queue.SimpleQueue[_Job | None]], threads: list[threading.Thread]) -> None:
    for todo in queues:
        todo.put(None)
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(timeout=5.0)
