"""What LeRobot's own code reads of a dataset of ours; runs where LeRobot is installed. Shapes: T frames."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embodichain.ext.lerobot.dataset import LeRobotWriter

pytest.importorskip("lerobot", reason="needs LeRobot")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
from lerobot.datasets.compute_stats import compute_episode_stats  # type: ignore[import-not-found, unused-ignore]
from lerobot.datasets.dataset_tools import delete_episodes  # type: ignore[import-not-found, unused-ignore]
from lerobot.datasets.lerobot_dataset import LeRobotDataset  # type: ignore[import-not-found, unused-ignore]
from PIL import Image

NUMBERS: dict[str, Any] = {
    "observation.state": {"dtype": "float32", "shape": [3], "names": ["a", "b", "c"]},
    "action": {"dtype": "float32", "shape": [1], "names": ["x"]},
    "next.done": {"dtype": "bool", "shape": [1], "names": None},
}
CAMERA = "observation.images.front"
IMAGES: dict[str, Any] = {CAMERA: {"dtype": "video", "shape": [32, 48, 3], "names": ["height", "width", "channels"]}}
TASKS = ("reach the red cube", "pick up the blue cube")
STATISTICS = ["count", "max", "mean", "min", "q01", "q10", "q50", "q90", "q99", "std"]


def frames(length: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "observation.state": rng.normal(size=(length, 3)).astype(np.float32),
        "action": rng.uniform(-1, 1, size=(length, 1)).astype(np.float32),
        "next.done": np.arange(length) == length - 1,
        CAMERA: rng.integers(0, 256, size=(length, 1, 1, 3), dtype=np.uint8).repeat(32, 1).repeat(48, 2),
    }


def write(root: Path, features: dict[str, Any]) -> None:
    writer = LeRobotWriter(root, 25, "ur10", features)
    for seed, (length, task) in enumerate(zip((20, 30), TASKS, strict=True)):
        own = {name: values for name, values in frames(length, seed).items() if name in features}
        writer.add_episode(own, task, {"success": True})


def test_dataset_is_loaded_with_images_tasks_and_statistics(tmp_path: Path) -> None:
    write(tmp_path / "cubes", NUMBERS | IMAGES)
    dataset = LeRobotDataset("ours/cubes", root=tmp_path / "cubes", video_backend="pyav")
    assert (dataset.num_episodes, dataset.num_frames, dataset.fps) == (2, 50, 25)
    frame = dataset[25]
    assert frame["task"] == TASKS[1]
    np.testing.assert_array_equal(frame["observation.state"], frames(30, 1)["observation.state"][5])
    expected = frames(30, 1)[CAMERA][5, 0, 0] / 255.0
    np.testing.assert_allclose(frame[CAMERA].numpy().mean(axis=(1, 2)), expected, atol=0.03)  # the video's compression
    stats = dataset.meta.stats
    assert stats is not None
    assert sorted(stats["action"]) == sorted(stats[CAMERA]) == STATISTICS
    assert all(value.shape == (3, 1, 1) for name, value in stats[CAMERA].items() if name != "count")
    assert stats[CAMERA]["count"].tolist() == [50]


def test_statistics_equal_lerobots(tmp_path: Path) -> None:
    episode = frames(20, 0)
    writer = LeRobotWriter(tmp_path / "cubes", 25, "ur10", NUMBERS | IMAGES)
    writer.add_episode(episode, TASKS[0], {})
    ours = LeRobotDataset("ours/cubes", root=tmp_path / "cubes").meta.stats
    paths = [tmp_path / f"{i}.png" for i in range(20)]
    for path, image in zip(paths, episode[CAMERA], strict=True):
        Image.fromarray(image).save(path)
    theirs = compute_episode_stats(episode | {CAMERA: list(map(str, paths))}, NUMBERS | IMAGES)
    for name, expected in theirs.items():
        assert ours is not None
        assert sorted(ours[name]) == sorted(expected)
        # LeRobot's quantiles are from histograms of 5,000 bins
        bin_size = (np.max(expected["max"]) - np.min(expected["min"])) / 5000
        for key, value in expected.items():
            assert ours[name][key].shape == value.shape, (name, key)
            np.testing.assert_allclose(ours[name][key], value, atol=max(bin_size, 1e-6) + 1e-6, err_msg=f"{name} {key}")


def test_lerobot_makes_a_smaller_dataset(tmp_path: Path) -> None:
    write(tmp_path / "cubes", NUMBERS)
    whole = LeRobotDataset("ours/cubes", root=tmp_path / "cubes")
    second = delete_episodes(whole, [0], output_dir=tmp_path / "second", repo_id="ours/second")
    expected = frames(30, 1)["observation.state"]
    stats = second.meta.stats
    assert stats is not None
    assert stats["observation.state"]["count"].tolist() == [30]
    np.testing.assert_allclose(stats["observation.state"]["mean"], expected.mean(axis=0), atol=1e-6)
