"""Threads that render the environments' images. Shapes: N environments, H height, W width of an image."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.rendering.appearance import Appearance
from embodichain.lab.sim.rendering.opengl import OpenGLDrawer
from embodichain.lab.sim.rendering.shot import RenderingUnavailableError, Shot

__all__ = ["RenderThreads"]


class RenderThreads:
    """Draws shots of many environments on several threads, each with an OpenGL context and a model of its own."""

    device = torch.device("cpu")

    def __init__(self, backend: Backend, appearance: Appearance, num_threads: int) -> None:
        """Start the threads."""
        self._queues: list[queue.SimpleQueue[_Job | None]] = [queue.SimpleQueue() for _ in range(num_threads)]
        # The thread must not keep this object alive, so that it ends with the last reference to it.
        threads = [
            threading.Thread(target=_work, args=(jobs, backend, appearance), name=f"render-{i}", daemon=True)
            for i, jobs in enumerate(self._queues)
        ]
        for thread in threads:
            thread.start()
        self._finalizer = weakref.finalize(self, _stop, self._queues, threads)

    def draw(self, shot: Shot, env_ids: Sequence[int]) -> None:
        """Draw a shot of some environments into its images.

        Raises:
            RenderingUnavailableError: OpenGL without a window is missing.
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


def _work(jobs: queue.SimpleQueue[_Job | None], backend: Backend, appearance: Appearance) -> None:
    drawer = OpenGLDrawer(backend, appearance, shadows=False)
    while (job := jobs.get()) is not None:
        try:
            drawer.draw(job.shot, job.env_ids)
            job.done.set_result(None)
        except RenderingUnavailableError as error:
            job.done.set_exception(error)
        finally:
            job.done.cancel()  # does nothing to what is done; a caller must not wait for a thread that has failed
    drawer.close()


def _stop(queues: list[queue.SimpleQueue[_Job | None]], threads: list[threading.Thread]) -> None:
    for todo in queues:
        todo.put(None)
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(timeout=5.0)
