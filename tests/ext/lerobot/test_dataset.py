"""Shapes: T frames of an episode, K numbers of a frame."""

import importlib.util
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from embodichain.ext.lerobot.dataset import FeatureStatistics, LeRobotWriter, image_size, read_lerobot
from embodichain.utils import ConfigError
from embodichain.utils.video import VideoWriter

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


def images_of(greys: list[int]) -> np.ndarray:
    return np.stack([np.full((16, 32, 3), grey, dtype=np.uint8) for grey in greys])


def write_video(path: Path, greys: list[int]) -> None:
    writer = VideoWriter(path, 32, 16, fps=10)
    for image in images_of(greys):
        writer.write(image)
    writer.close()


def write(root: Path, with_video: bool = False) -> None:
    writer = LeRobotWriter(root, 10, "robot", FEATURES | (VIDEO if with_video else {}))
    for length, start, task, greys in ((2, 0.0, "push it", [10, 60]), (3, 5.0, "lift it", [110, 160, 210])):
        video = {"observation.images.cam": images_of(greys)} if with_video else {}
        writer.add_episode(frames(length, start) | video, task, {"success": True})


def test_episodes_are_read_as_they_were_written(tmp_path: Path) -> None:
    write(tmp_path)
    first, second = read_lerobot(tmp_path)
    assert (first.task, second.task) == ("push it", "lift it")
    for episode, expected in ((first, frames(2, 0.0)), (second, frames(3, 5.0))):
        for name, value in expected.items():
            np.testing.assert_array_equal(episode.frames[name].reshape(value.shape), value)


def test_folder_without_a_dataset_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^{tmp_path}: no LeRobot dataset: there is no {tmp_path}/meta/info.json"):
        next(read_lerobot(tmp_path))


def test_images_are_read_from_the_videos(tmp_path: Path) -> None:
    write(tmp_path, with_video=True)
    seen = [episode.frames["observation.images.cam"] for episode in read_lerobot(tmp_path)]
    assert [x.shape for x in seen] == [(2, 16, 32, 3), (3, 16, 32, 3)]
    # the encoder may be off by a few grey levels
    means = np.concatenate(seen).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(means, [10, 60, 110, 160, 210], atol=4)


def test_sizes_of_images_are_read_by_their_names() -> None:
    assert image_size({"shape": [16, 32, 3], "names": ["height", "width", "channels"]}) == (16, 32)
    assert image_size({"shape": [3, 16, 32], "names": ["channels", "height", "width"]}) == (16, 32)
    assert image_size({"shape": [16, 32, 3], "names": None}) == (16, 32)
    assert image_size({"shape": [3, 16, 32], "names": {"axes": ["channels", "height", "width"]}}) == (16, 32)


def test_images_in_the_table_are_decoded(tmp_path: Path) -> None:
    write(tmp_path)
    images = images_of([10, 60, 110, 160, 210])
    cells = []
    for image in images:
        Image.fromarray(image).save(buffer := io.BytesIO(), "png")
        cells.append({"bytes": buffer.getvalue(), "path": None})
    for path, own in zip(sorted((tmp_path / "data").rglob("*.parquet")), (cells[:2], cells[2:]), strict=True):
        parquet.write_table(parquet.read_table(path).append_column("observation.images.cam", [own]), path)
    info = json.loads((tmp_path / "meta/info.json").read_text())
    info["features"]["observation.images.cam"] = {"dtype": "image", "shape": [16, 32, 3], "names": None}
    (tmp_path / "meta/info.json").write_text(json.dumps(info))
    seen = np.concatenate([episode.frames["observation.images.cam"] for episode in read_lerobot(tmp_path)])
    np.testing.assert_array_equal(seen, images)


def test_several_episodes_in_one_file(tmp_path: Path) -> None:
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
    write_video(videos / "file-000.mp4", [10, 60, 110, 160, 210])
    first, second = read_lerobot(tmp_path)
    assert first.frames["observation.state"][:, 0].tolist() == [0.0, 1.0]
    assert second.frames["observation.state"][:, 0].tolist() == [5.0, 6.0, 7.0]
    means = second.frames["observation.images.cam"].mean(axis=(1, 2, 3))
    np.testing.assert_allclose(means, [110, 160, 210], atol=4)


def test_missing_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"need pyarrow: .*pip install .*'pyarrow"):
        LeRobotWriter(tmp_path, 25, "cart", {})


def test_other_versions_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    info = json.loads((tmp_path / "meta/info.json").read_text())
    (tmp_path / "meta/info.json").write_text(json.dumps(info | {"codebase_version": "v2.1"}))
    with pytest.raises(ConfigError, match=r"version v3\.0 are read, this one is of 'v2\.1'"):
        next(read_lerobot(tmp_path))


def test_video_that_is_too_short_is_refused(tmp_path: Path) -> None:
    write(tmp_path, with_video=True)
    videos = tmp_path / "videos/observation.images.cam/chunk-000"
    (videos / "file-000.mp4").replace(videos / "file-001.mp4")  # two pictures for three frames
    write_video(videos / "file-000.mp4", [10, 60])
    with pytest.raises(ValueError, match="has 2 of the 3 images of an episode"):
        list(read_lerobot(tmp_path))


# --- statistics ---


def data_of(values: Any, dtype: str = "float32") -> dict[str, Any]:
    return FeatureStatistics.of(np.array(values, dtype=dtype)).as_data()


def test_statistics_of_numbers() -> None:
    data = data_of([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 8.0], [5.0, 0.0]])
    assert (data["min"], data["max"], data["count"]) == ([1.0, 0.0], [5.0, 8.0], [5])
    assert data["mean"] == pytest.approx([3.0, 1.6])
    # ((4 + 1 + 0 + 1 + 4) / 5)^0.5; (64 / 5 - 1.6^2)^0.5
    assert data["std"] == pytest.approx([math.sqrt(2.0), 3.2])
    # the first number that a share of the frames does not exceed: of five, 1 % and 10 % are the first, 50 % the third
    quantiles = {name: data[name] for name in ("q01", "q10", "q50", "q90", "q99")}
    assert quantiles == {"q01": [1, 0], "q10": [1, 0], "q50": [3, 0], "q90": [5, 8], "q99": [5, 8]}


def test_statistics_of_images() -> None:
    images = np.zeros((2, 1, 5, 3), dtype=np.uint8)  # ten pixels
    images[0, 0, :, 0] = 255  # half of them
    images[1, 0, 4, 1] = 51  # one of them
    images[..., 2] = 102
    data = FeatureStatistics.of(images).as_data()
    assert data["count"] == [2]  # frames, not pixels
    expected = {
        "min": (0.0, 0.0, 0.4),
        "max": (1.0, 0.2, 0.4),
        "mean": (0.5, 0.02, 0.4),
        "std": (0.5, math.sqrt(0.2**2 / 10 - 0.02**2), 0.0),
        "q50": (0.0, 0.0, 0.4),
        "q90": (1.0, 0.0, 0.4),
        "q99": (1.0, 0.2, 0.4),
    }
    for name, channels in expected.items():
        assert np.shape(data[name]) == (3, 1, 1)
        np.testing.assert_allclose(np.ravel(data[name]), channels, atol=1e-7, err_msg=name)


def test_merged_statistics_are_of_all_frames() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=(30, 2)), rng.normal(size=(10, 2)) + 5.0
    both = FeatureStatistics.of(one).merged(FeatureStatistics.of(other)).as_data()
    every = FeatureStatistics.of(np.concatenate((one, other))).as_data()
    for name in ("min", "max", "mean", "std", "count"):
        np.testing.assert_allclose(both[name], every[name], atol=1e-12)


def test_merged_quantiles_are_weighted_by_frames() -> None:
    merged = FeatureStatistics.of(np.array([1.0, 1.0, 1.0])).merged(FeatureStatistics.of(np.array([5.0])))
    assert merged.as_data()["q50"] == [2.0]  # (3 x 1 + 1 x 5) / 4
    assert merged.as_data()["q99"] == [2.0]
