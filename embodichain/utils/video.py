"""Videos, written and read by ffmpeg, and captions of images."""

import queue
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from PIL import Image, ImageDraw, ImageFont

VIDEO_SUFFIXES = (".mp4", ".mov", ".mkv", ".avi")
"""Suffixes of the files that :class:`VideoWriter` writes."""
_LONGEST_LINE = 100  # bytes of a line of an image's header
_GIF_FPS, _GIF_WIDTH, _GIF_SECONDS = 10, 320, 10
_BACK = (20, 20, 20)
TEXT_COLOUR = (245, 245, 245)
"""Colour of a caption's text, RGB."""


@dataclass(frozen=True)
class Footage:
    """Number of recorded images, and the time that rendering and writing them took, s."""

    frames: int = 0
    seconds: float = 0.0

    def __add__(self, other: "Footage") -> "Footage":
        """Return the sum of both."""
        return Footage(self.frames + other.frames, self.seconds + other.seconds)


class VideoWriter:
    """Writes images [height, width, 3] uint8 into a video of ``VIDEO_SUFFIXES`` (H.264, which browsers show as mp4).

    ffmpeg is fed by a thread: the caller waits only while 128 images wait. The file's folder is created; width and
    height are even.
    """

    def __init__(self, path: Path, width: int, height: int, fps: float) -> None:
        self.path, self._shape = path, (height, width, 3)
        path.parent.mkdir(parents=True, exist_ok=True)
        images = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-"]
        video = ["-an", "-vcodec", "libx264", "-pix_fmt", "yuv420p", "-crf", "15"]
        self._encoder = subprocess.Popen(
            [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error", *images, *video, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C does not reach it, so that close can finish the file
        )
        self._queue: queue.Queue[np.ndarray | None] = queue.Queue(maxsize=128)
        self._thread = threading.Thread(target=self._run, name="video", daemon=True)
        self._thread.start()

    def write(self, image: np.ndarray) -> None:
        """Append a copy of an image; a ValueError if it has another size or type."""
        if image.shape != self._shape:
            raise ValueError(f"the size of the images changes from {list(self._shape)} to {list(image.shape)}")
        if image.dtype != np.uint8:
            raise ValueError(f"the images must be uint8, got {image.dtype}")
        self._queue.put(np.array(image, order="C"))

    def close(self) -> None:
        """Finish the file; an OSError if the encoder has failed since the beginning, or nothing was written."""
        self._queue.put(None)
        self._thread.join()
        _, complaints = self._encoder.communicate()
        if self._encoder.returncode:
            with suppress(OSError):
                self.path.unlink()  # without its end it cannot be played
            lines = complaints.decode(errors="replace").strip().splitlines()
            raise OSError(lines[-1] if lines else f"ffmpeg ended with code {self._encoder.returncode}")

    def _run(self) -> None:
        assert self._encoder.stdin is not None
        image: np.ndarray | None = None
        try:
            while (image := self._queue.get()) is not None:
                self._encoder.stdin.write(image.data)
        except OSError:  # the encoder has ended; empty the queue, so that write does not block
            while image is not None:
                image = self._queue.get()


def as_gif(path: Path) -> bytes:
    """Return a video's first seconds as an animated GIF, small enough for a log."""
    # The palette of the whole GIF is chosen from its own frames: the standard one has bands in a sky.
    small = f"fps={_GIF_FPS},scale={_GIF_WIDTH}:-2,split[a][b];[a]palettegen[p];[b][p]paletteuse=dither=none"
    limits = ["-t", str(_GIF_SECONDS), "-i", f"file:{path}", "-filter_complex", small]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-nostdin", "-v", "error", *limits, "-f", "gif", "-"]
    return subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True).stdout


class VideoReader:
    """Decodes a video of ``height`` x ``width`` pixels on demand: its images may not all fit into memory.

    Attributes:
        position: number of the next image.
    """

    def __init__(self, path: Path, height: int, width: int) -> None:
        if not path.is_file():
            raise FileNotFoundError(f"{path} is not there")
        self.path = path
        self.position = 0
        self._shape = (height, width, 3)
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        # PPM says the size before each image, so that one of another size is noticed before it is read.
        to_images = ["-an", "-f", "image2pipe", "-c:v", "ppm", "-pix_fmt", "rgb24", "-"]
        self._decoder = subprocess.Popen(
            [imageio_ffmpeg.get_ffmpeg_exe(), "-nostdin", "-v", "error", "-i", f"file:{path}", *to_images],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
        )
        self._images = self._decode()

    def __enter__(self) -> "VideoReader":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def read(self, count: int) -> np.ndarray:
        """Return the next ``count`` images, or as many as there are, [T, height, width, 3] uint8."""
        images = list(islice(self._images, count))
        return np.stack(images) if images else np.zeros((0, *self._shape), np.uint8)

    def skip(self, count: int) -> None:
        """Pass over images, or as many as there are; a ValueError as for :meth:`read`."""
        deque(islice(self._images, count), maxlen=0)

    def close(self) -> None:
        """End the decoder."""
        self._decoder.kill()
        self._decoder.communicate()
        self._complaints.close()

    def _decode(self) -> Iterator[np.ndarray]:
        stream = self._decoder.stdout
        assert stream is not None
        height, width, _ = self._shape
        while lines := stream.readline(_LONGEST_LINE):
            lines += stream.readline(_LONGEST_LINE) + stream.readline(_LONGEST_LINE)
            if lines != f"P6\n{width} {height}\n255\n".encode():
                size = lines.split(b"\n")[1].decode(errors="replace").replace(" ", "x")
                raise ValueError(f"{self.path} has images of {size}, not {width}x{height}")
            image = stream.read(height * width * 3)
            if len(image) < height * width * 3:
                break
            self.position += 1
            yield np.frombuffer(image, np.uint8).reshape(self._shape)
        if self._decoder.wait():
            self._complaints.seek(0)
            raise ValueError(f"{self.path} cannot be decoded: {self._complaints.read(1000).decode(errors='replace')}")


def draw_caption(
    image: np.ndarray, text: str, colour: tuple[int, int, int] = TEXT_COLOUR, at_top: bool = False
) -> np.ndarray:
    """Return an image [H, W, 3] uint8 with a caption on a dark strip, scaled to its width.

    Args:
        colour: colour of the text.
        at_top: at the upper edge, smaller and left-aligned, so that numbers do not move it; else at the lower edge.
    """
    height, width, _ = image.shape
    size = max(8.0, height / (22 if at_top else 16))
    font = ImageFont.load_default(size)
    room = 0.94 * width
    length = font.getlength(text)
    if length > room:
        font = ImageFont.load_default(max(6.0, size * room / length))
    drawn = Image.fromarray(image)
    draw = ImageDraw.Draw(drawn)
    strip = round(1.7 * size)
    top = 0 if at_top else height - strip
    draw.rectangle((0, top, width, top + strip), fill=_BACK)
    x, anchor = (0.03 * width, "lm") if at_top else (width / 2, "mm")
    draw.text((x, top + strip / 2), text, fill=colour, font=font, anchor=anchor)
    return np.asarray(drawn)
