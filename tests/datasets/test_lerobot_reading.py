"""Shapes: T frames of an episode."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embodichain.datasets import lerobot_reading
from embodichain.datasets.lerobot_dataset import LeRobotWriter
from embodichain.datasets.lerobot_reading import read_lerobot
from embodichain.utils import ConfigError
from embodichain.utils.video import VideoReader, VideoWriter

pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
from pyarrow import parquet  # noqa: E402

FEATURES: dict[str, Any] = {
    "observation.state": {"dtype": "float32", "shape": [2], "names": None},
    "action": {"dtype": "float32", "shape": [1], "names": None},
    "next.done": {"dtype": "bool", "shape": [1], "names": None},
}
VIDEO = {"observation.images.cam": {"dtype": "video", "shape": [16, 32, 3], "names": None}}


def frames(length: int, start: float) -> dict[str, np.ndarray]:
    steps = np.arange(length, dtype=np.float32) + start
    return {
        "observation.state": np.stack((steps, -steps), axis=1),
        "action": steps[:, None] / 10,
        "next.done": np.arange(length) == length - 1,
    }


def pictures(greys: list[int]) -> np.ndarray:
    return np.stack([np.full((16, 32, 3), grey, dtype=np.uint8) for grey in greys])


def write(root: Path, with_video: bool = False) -> None:
    writer = LeRobotWriter(root, 10, "robot", FEATURES | (VIDEO if with_video else {}))
    for length, start, task, greys in ((2, 0.0, "push it", [10, 60]), (3, 5.0, "lift it", [110, 160, 210])):
        video = {"observation.images.cam": pictures(greys)} if with_video else {}
        writer.add_episode(frames(length, start) | video, task, {"success": True})


def test_episodes_come_back_as_they_were_written(tmp_path: Path) -> None:
    write(tmp_path)
    first, second = read_lerobot(tmp_path)
    assert (first.task, second.task) == ("push it", "lift it")
    for episode, expected in ((first, frames(2, 0.0)), (second, frames(3, 5.0))):
        for name, value in expected.items():
            np.testing.assert_array_equal(episode.frames[name].reshape(value.shape), value)


def test_pictures_come_back_from_the_videos(tmp_path: Path) -> None:
    write(tmp_path, with_video=True)
    seen = [episode.frames["observation.images.cam"] for episode in read_lerobot(tmp_path)]
    assert [x.shape for x in seen] == [(2, 16, 32, 3), (3, 16, 32, 3)]
    # the encoder may be off by a few grey levels
    means = np.concatenate(seen).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(means, [10, 60, 110, 160, 210], atol=4)


def test_several_episodes_in_one_file_are_told_apart(tmp_path: Path) -> None:
    """As LeRobot itself writes them: one table and one video for many episodes."""
    write(tmp_path, with_video=True)
    for part in ("data", "meta/episodes"):
        folder = tmp_path / part / "chunk-000"
        tables = [parquet.read_table(folder / f"file-00{i}.parquet") for i in range(2)]
        columns = {name: [value for t in tables for value in t[name].to_pylist()] for name in tables[0].column_names}
        if part != "data":
            for name in columns:
                if name.endswith("/file_index"):
                    columns[name] = [0, 0]
            columns["videos/observation.images.cam/from_timestamp"] = [0.0, 0.2]
        parquet.write_table(pyarrow.table(columns), folder / "file-000.parquet")
        (folder / "file-001.parquet").unlink()
    videos = tmp_path / "videos/observation.images.cam/chunk-000"
    (videos / "file-001.mp4").unlink()
    writer = VideoWriter(videos / "file-000.mp4", 32, 16, fps=10)
    for picture in pictures([10, 60, 110, 160, 210]):
        writer.write(picture)
    writer.close()
    first, second = read_lerobot(tmp_path)
    assert first.frames["observation.state"][:, 0].tolist() == [0.0, 1.0]
    assert second.frames["observation.state"][:, 0].tolist() == [5.0, 6.0, 7.0]
    means = second.frames["observation.images.cam"].mean(axis=(1, 2, 3))
    np.testing.assert_allclose(means, [110, 160, 210], atol=4)


def test_folder_without_a_dataset_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is no LeRobot dataset: .*info\.json cannot be read: No such file"):
        next(read_lerobot(tmp_path / "none"))


def test_other_versions_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    info = json.loads((tmp_path / "meta/info.json").read_text())
    (tmp_path / "meta/info.json").write_text(json.dumps(info | {"codebase_version": "v2.1"}))
    with pytest.raises(ConfigError, match=r"version v3\.0 are read, this one is of 'v2\.1'"):
        next(read_lerobot(tmp_path))


@pytest.mark.parametrize(
    "lost", ["data/chunk-000/file-000.parquet", "videos/observation.images.cam/chunk-000/file-000.mp4"]
)
def test_lost_file_is_named(tmp_path: Path, lost: str) -> None:
    write(tmp_path, with_video=True)
    (tmp_path / lost).unlink()
    with pytest.raises(ConfigError, match=rf"is no whole LeRobot dataset: .*{Path(lost).name}"):
        list(read_lerobot(tmp_path))


@pytest.mark.parametrize("file", ["meta/info.json", "meta/episodes/chunk-000/file-000.parquet"])
def test_pipe_in_place_of_a_file_is_refused(tmp_path: Path, file: str) -> None:
    write(tmp_path)
    (tmp_path / file).unlink()
    os.mkfifo(tmp_path / file)
    with pytest.raises(ConfigError, match="is no regular file"):  # and not waited for
        list(read_lerobot(tmp_path))


def test_video_that_is_too_short_is_refused(tmp_path: Path) -> None:
    write(tmp_path, with_video=True)
    videos = tmp_path / "videos/observation.images.cam/chunk-000"
    (videos / "file-000.mp4").replace(videos / "file-001.mp4")  # two pictures for three frames
    writer = VideoWriter(videos / "file-000.mp4", 32, 16, fps=10)
    for picture in pictures([10, 60]):
        writer.write(picture)
    writer.close()
    with pytest.raises(ConfigError, match="has 2 of the 3 images of an episode"):
        list(read_lerobot(tmp_path))


def change(root: Path, **info: Any) -> None:
    path = root / "meta/info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | info))


@pytest.mark.e2e
@pytest.mark.parametrize(
    "features",
    [None, [], {"action": None}, {"action": {"shape": [1]}}, {"cam": {"dtype": "video"}}]
    + [{"cam": {"dtype": "video", "shape": shape}} for shape in (None, [16, 32], [16, 0, 3], [16, "a", 3])],
)
def test_features_that_are_none_are_one_line(tmp_path: Path, features: Any) -> None:
    write(tmp_path)
    change(tmp_path, features=features)
    with pytest.raises(ConfigError, match=r"info\.json: features: must be an object of features"):
        next(read_lerobot(tmp_path))


@pytest.mark.e2e
@pytest.mark.parametrize(
    "info", [{"fps": None}, {"fps": 1e400}, {"data_path": None}, {"data_path": "{nothing}"}, {"video_path": 3}]
)
def test_description_of_the_wrong_kind_is_one_line(tmp_path: Path, info: dict[str, Any]) -> None:
    write(tmp_path, with_video=True)
    change(tmp_path, **info)
    with pytest.raises(ConfigError, match="is no whole LeRobot dataset"):
        list(read_lerobot(tmp_path))


def test_template_of_a_path_makes_no_gigabytes(tmp_path: Path) -> None:
    write(tmp_path)
    change(tmp_path, data_path="{chunk_index:0999999999d}{chunk_index.__class__}")
    with pytest.raises(ConfigError, match=r"chunk_index:0999999999d.*chunk_index\.__class__"):
        next(read_lerobot(tmp_path))


@pytest.mark.e2e
def test_video_with_more_pictures_than_the_episode_is_read_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, with_video=True)
    video = tmp_path / "videos/observation.images.cam/chunk-000/file-000.mp4"
    writer = VideoWriter(video, 32, 16, fps=10)
    for picture in pictures([10, 60] + [0] * 500):
        writer.write(picture)
    writer.close()
    readers: list[VideoReader] = []

    def kept(*args: Any) -> VideoReader:
        readers.append(VideoReader(*args))
        return readers[-1]

    monkeypatch.setattr(lerobot_reading, "VideoReader", kept)
    first, _ = read_lerobot(tmp_path)
    assert len(first.frames["observation.images.cam"]) == 2
    assert [reader.position for reader in readers] == [2, 3]
    assert all(reader._decoder.returncode is not None for reader in readers)  # ended
