"""Videos that the code under test has written."""

from pathlib import Path

import numpy as np

from embodichain.utils.video import VideoReader


def read_video(path: Path, height: int, width: int, most: int = 10_000) -> np.ndarray:
    """Return a video's images, [T, height, width, 3] uint8, ``most`` at most."""
    with VideoReader(path, height, width) as reader:
        return reader.read(most)
