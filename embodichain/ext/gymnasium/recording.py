"""A video of an episode, from the images that an environment's ``render`` makes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from embodichain.utils import logger
from embodichain.utils.errors import CommandFailedError, reason_of
from embodichain.utils.video import Footage, VideoWriter

_MOST_IMAGES = 400  # of a video


class NoImageError(CommandFailedError):
    """An environment makes no image that a video can have; the message says why."""


class EpisodeRecorder:
    """Writes a video of the first episode that begins after :meth:`start`, or of its first 400 states.

    A failure is one warning, and nothing is recorded after it: a machine without OpenGL trains all the same.

    Args:
        image: returns an image [H, W, 3] uint8 of the present state, or raises a ``NoImageError``.

    Attributes:
        footage: of the recording that began last.
    """

    def __init__(self, image: Callable[[], np.ndarray]) -> None:
        self._image = image
        self._fps = 0.0
        self._path: Path | None = None  # while there is something to record
        self._writer: VideoWriter | None = None
        self._shape: tuple[int, ...] = ()
        self.footage = Footage()
        self._is_available = True

    def start(self, folder: Path, label: str, fps: float) -> None:
        """Record the next episode into ``<folder>/render_<label>.mp4``."""
        self._path = folder / f"render_{label}.mp4" if self._is_available else None
        self._fps = fps
        self.footage = Footage()

    def begin_episode(self) -> None:
        """Add an image of the episode's first state; if there are images already, end the recording before it."""
        if self._writer is None:
            self._add()
        else:
            self._path = None

    def add_image(self) -> None:
        """Add an image to the episode that is being recorded, if any."""
        if self._writer is not None:
            self._add()

    def stop(self) -> list[Path]:
        """Finish the video and return its path; nothing if there is none."""
        writer, self._writer, self._path = self._writer, None, None
        if writer is None:
            return []
        start = time.perf_counter()
        try:
            writer.close()
        except OSError as error:
            logger.log_warning(f"video {writer.path} could not be written: {reason_of(error)}")
            return []
        self.footage += Footage(seconds=time.perf_counter() - start)
        return [writer.path]

    def _add(self) -> None:
        if self._path is None or self.footage.frames == _MOST_IMAGES:
            return
        start = time.perf_counter()
        try:
            image = self._image()
            if self._writer is None:
                self._shape = image.shape
                self._writer = VideoWriter(self._path, image.shape[1], image.shape[0], self._fps)
            if image.shape != self._shape:
                sizes = " to ".join(str(list(shape[:2])) for shape in (self._shape, image.shape))
                raise NoImageError(f"the size of the environment's images changes from {sizes}")
            self._writer.write(image)
            self.footage += Footage(1, time.perf_counter() - start)
        except NoImageError as error:
            self._is_available, self._path = False, None
            logger.log_warning(f"no video is recorded{' further' if self._writer else ''}: {error}")
        except OSError as error:
            logger.log_warning(f"video {self._path} could not be written: {reason_of(error)}")
            self._path = self._writer = None
