"""Videos and captions."""

import re
import subprocess
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from embodichain.utils.video import VideoReader, VideoWriter, draw_caption
from tests.videos import read_video

WIDTH, HEIGHT = 64, 48


def picture(value: int) -> np.ndarray:
    """Return a picture whose left half is of that grey, and whose right half is black."""
    result = np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)
    result[:, : WIDTH // 2] = value
    return result


def read(path: Path) -> list[np.ndarray]:
    return list(read_video(path, HEIGHT, WIDTH))


def describe(path: Path) -> str:
    """Return what ffmpeg says of a file."""
    return subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(path)], capture_output=True, text=True).stderr


def test_video_has_every_picture_in_order_at_its_speed(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "video.mp4"
    values = [20, 60, 100, 140, 180]
    write_pictures(path, values)
    assert re.search(r"Video: h264 .*yuv420p.*, 64x48.*, 10 fps", describe(path))  # what browsers show
    frames = read(path)
    assert [frame[:, 4:28].mean() for frame in frames] == pytest.approx(values, abs=6)
    assert [frame[:, 36:60].mean() for frame in frames] == pytest.approx([0] * 5, abs=6)
    assert imageio_ffmpeg.count_frames_and_secs(str(path)) == (5, 0.5)


def test_caller_may_reuse_an_image(tmp_path: Path) -> None:
    writer, image = VideoWriter(tmp_path / "video.mp4", WIDTH, HEIGHT, fps=10), picture(200)
    writer.write(image)
    image[:] = 0
    writer.close()
    (frame,) = read(tmp_path / "video.mp4")
    assert frame[:, 4:28].mean() == pytest.approx(200, abs=6)


# noticed at the end, or in the midst of it; 300 are more than the queue holds: nobody waits for room in it
@pytest.mark.parametrize("num_pictures", [1, 300])
def test_unwritable_video_is_an_error_in_ffmpegs_words(tmp_path: Path, num_pictures: int) -> None:
    (tmp_path / "video.mp4").mkdir()  # ffmpeg finds a folder in its place
    writer = VideoWriter(tmp_path / "video.mp4", WIDTH, HEIGHT, fps=10)

    def write_all() -> None:
        for _ in range(num_pictures):
            writer.write(picture(1))
        writer.close()

    with pytest.raises(OSError, match="Is a directory"):
        write_all()


def write_pictures(path: Path, values: list[int]) -> Path:
    writer = VideoWriter(path, WIDTH, HEIGHT, fps=10)
    for value in values:
        writer.write(picture(value))
    writer.close()
    return path


def test_reader_decodes_no_further_than_it_is_asked(tmp_path: Path) -> None:
    # 3000 pictures that are all the same: some kB as a file, 27 MB decoded
    path = write_pictures(tmp_path / "video.mp4", [20, 60] + [100] * 3000)
    with VideoReader(path, HEIGHT, WIDTH) as reader:
        reader.skip(1)
        assert reader.read(2)[:, :, 4:28].mean(axis=(1, 2, 3)) == pytest.approx([60, 100], abs=6)
        assert reader.position == 3
        reader.skip(10**12)  # no more than there are
        assert reader.position == 3002
    assert len(read_video(path, HEIGHT, WIDTH, most=5)) == 5


def test_pictures_of_another_size_are_refused_at_the_first(tmp_path: Path) -> None:
    path = write_pictures(tmp_path / "video.mp4", [1] * 3)
    with pytest.raises(ValueError, match=r"video\.mp4 has images of 64x48, not 32x96"):
        read_video(path, 96, 32)  # as many bytes a picture


def test_image_of_another_type_is_refused(tmp_path: Path) -> None:
    writer = VideoWriter(tmp_path / "video.mp4", WIDTH, HEIGHT, fps=10)
    with pytest.raises(ValueError, match="the images must be uint8, got float64"):
        writer.write(picture(1) / 255)
    writer.write(picture(1))
    writer.close()


def test_file_that_is_no_video_is_refused_in_ffmpegs_words(tmp_path: Path) -> None:
    (tmp_path / "video.mp4").write_bytes(b"no video" * 100)
    with pytest.raises(ValueError, match=r"video\.mp4 cannot be decoded"):
        read_video(tmp_path / "video.mp4", HEIGHT, WIDTH)


def test_words_are_light_on_a_dark_strip_and_the_rest_stays() -> None:
    picture = np.full((160, 200, 3), 128, dtype=np.uint8)
    drawn = draw_caption(picture, "push the red cube")
    # letters of 160 / 16 = 10 pixels on a strip of 17
    strip = drawn[-17:]
    assert (drawn[:-17] == 128).all()
    assert (strip[:, 0] == (20, 20, 20)).all()
    assert (strip > 200).any()
    assert (picture == 128).all()
