"""Videos, written by ffmpeg."""

from __future__ import annotations

import queue
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import imageio_ffmpeg
import numpy as np

__all__ = ["BackgroundVideoWriter", "VideoWriter", "read_video"]


class VideoWriter:
    """Writes pictures [height, width, 3] uint8 into an mp4 file (H.264, which browsers show)."""

    def __init__(self, path: Path, width: int, height: int, fps: float) -> None:
        """Begin a file.

        Args:
            path: of the file; its folder is made.
            width: of the pictures, pixels, even.
            height: of the pictures, pixels, even.
            fps: pictures a second.

        Raises:
            OSError: the folder cannot be made, or there is no ffmpeg.
        """
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        # In a session of its own, so that an interrupt in the terminal leaves it to us to finish the file.
        self._encoder = subprocess.Popen(
            _command(path, width, height, fps),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def write(self, picture: np.ndarray) -> None:
        """Append a picture.

        Raises:
            OSError: the encoder has failed; there is nothing left to be closed.
        """
        assert self._encoder.stdin is not None
        try:
            self._encoder.stdin.write(np.ascontiguousarray(picture).data)
        except BrokenPipeError:
            self._finish()
            raise

    def close(self) -> None:
        """Finish the file.

        Raises:
            OSError: the encoder has failed.
        """
        self._finish()

    def _finish(self) -> None:
        _, complaints = self._encoder.communicate()
        code = self._encoder.returncode
        if code != 0:
            with suppress(OSError):
                self.path.unlink()  # without its end it cannot be played
            text = complaints.decode(errors="replace").strip()
            ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
            raise OSError(text.splitlines()[-1] if text else f"ffmpeg {ended}")


class BackgroundVideoWriter(VideoWriter):
    """The same from a thread of its own, so that encoding holds nobody up; a failure is raised by ``close``."""

    def __init__(self, path: Path, width: int, height: int, fps: float) -> None:
        super().__init__(path, width, height, fps)
        self._queue: queue.Queue[np.ndarray | None] = queue.Queue(maxsize=128)
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="video", daemon=True)
        self._thread.start()

    def write(self, picture: np.ndarray) -> None:
        """Append a picture; waits only while 128 others are waiting."""
        self._queue.put(picture)

    def close(self) -> None:
        """Finish the file.

        Raises:
            OSError: the encoder has failed since the beginning, or nothing was written.
        """
        self._queue.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while (picture := self._queue.get()) is not None:
                super().write(picture)
            super().close()
        except OSError as error:
            self._error = error
            # The rest is not wanted any more, but nobody may wait for room in the queue.
            while picture is not None:
                picture = self._queue.get()


def _command(path: Path, width: int, height: int, fps: float) -> list[str]:
    try:
        ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    except RuntimeError as error:
        raise OSError(f"no ffmpeg: {error}") from error
    pictures = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-"]
    video = ["-an", "-vcodec", "libx264", "-pix_fmt", "yuv420p", "-crf", "15"]
    return [ffmpeg, "-y", "-v", "error", *pictures, *video, str(path)]


def read_video(path: Path, height: int, width: int) -> np.ndarray:
    """Return a video's pictures, [T, height, width, 3] uint8.

    Args:
        path: of the file.
        height: of the pictures, pixels.
        width: of the pictures, pixels.

    Raises:
        FileNotFoundError: the file is not there.
        ValueError: it cannot be decoded.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there")
    command = [
        imageio_ffmpeg.get_ffmpeg_exe(),
        "-v",
        "error",
        "-i",
        str(path),
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-",
    ]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise ValueError(f"{path} cannot be decoded: {done.stderr.decode(errors='replace').strip()}")
    return np.frombuffer(done.stdout, dtype=np.uint8).reshape(-1, height, width, 3)
