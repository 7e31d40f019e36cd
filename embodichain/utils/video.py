"""Videos, written by ffmpeg."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np

from embodichain.utils import logger

__all__ = ["BackgroundVideoWriter", "VideoWriter"]


class VideoWriter:
    """Writes pictures [height, width, 3] uint8 into an mp4 file (H.264, which browsers show)."""

    def __init__(self, path: Path, width: int, height: int, fps: float) -> None:
        """Begin a file.

        Args:
            path: of the file; its folder is made.
            width: of the pictures, pixels, even.
            height: of the pictures, pixels, even.
            fps: pictures a second.
        """
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._encoder = imageio_ffmpeg.write_frames(
            str(path),
            (width, height),
            fps=fps,
            macro_block_size=2,
            codec="libx264",
            quality=7,
            ffmpeg_log_level="error",
        )
        self._encoder.send(None)

    def write(self, picture: np.ndarray) -> None:
        """Append a picture."""
        self._encoder.send(np.ascontiguousarray(picture))

    def close(self) -> None:
        """Finish the file."""
        self._encoder.close()


class BackgroundVideoWriter(VideoWriter):
    """The same from a thread of its own, so that encoding holds nobody up; a failure is reported once, not raised."""

    def __init__(self, path: Path, width: int, height: int, fps: float) -> None:
        super().__init__(path, width, height, fps)
        self._queue: queue.Queue[Any] = queue.Queue(maxsize=128)
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="video", daemon=True)
        self._thread.start()

    def write(self, picture: np.ndarray) -> None:
        """Append a picture; waits only while 128 others are waiting."""
        self._queue.put(picture)

    def close(self) -> None:
        """Finish the file."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (picture := self._queue.get()) is not None:
            if not self._failed:
                self._attempt(super().write, picture)
        self._attempt(super().close)

    def _attempt(self, action: Any, *args: Any) -> None:
        try:
            action(*args)
        except OSError as error:
            self._failed = True
            logger.log_warning(f"video {self.path} is incomplete: {error}")
