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
    """Writes a video of the first episode that begins after :meth:`start`, or of its first 400 steps.

    What fails is one warning, and nothing is recorded after it: a machine without OpenGL trains all the same.

    Args:
        image: returns an image [H, W, 3] uint8 of the present state, or raises a ``NoImageError``.
        fps: images a second.

    Attributes:
        footage: of the recording that began last.
    """

    def __init__(self, image: Callable[[], np.ndarray], fps: float) -> None:
        self._image = image
        self._fps = fps
        self._path: Path | None = None  # while there is something to record
        self._writer: VideoWriter | None = None
        self.footage = Footage()
        self._is_available = True

    def start(self, folder: Path, label: str) -> None:
        """Record the next episode into ``<folder>/render_<label>.mp4``."""
        self._path = folder / f"render_{label}.mp4" if self._is_available else None
        self.footage = Footage()

    def begin_episode(self) -> None:
        """Add an image of the episode's beginning; if there are images already, end the recording before it."""
        if self._writer is None:
            self.add_image()
        else:
            self._path = None

    def add_image(self) -> None:
        """Add an image to the episode that is being recorded, if any."""
        if self._path is None or self.footage.frames == _MOST_IMAGES:
            return
        start = time.perf_counter()
        try:
            image = even_sized(self._image())
        except NoImageError as error:
            self._is_available, self._path = False, None
            logger.log_warning(f"no video is recorded{' further' if self._writer else ''}: {error}")
            return
        try:
            if self._writer is None:
                height, width, _ = image.shape
                self._writer = VideoWriter(self._path, width, height, self._fps)
            self._writer.write(image)
            self.footage += Footage(1, time.perf_counter() - start)
        except OSError as error:
            logger.log_warning(f"video {self._path} could not be written: {reason_of(error)}")
            self._path = self._writer = None

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


def even_sized(image: np.ndarray) -> np.ndarray:
    """Return an image [H, W, 3] without a last row or column that makes its size odd, which the encoder refuses."""
    height, width = (size - size % 2 for size in image.shape[:2])
    return image[:height, :width]
