"""Datasets in LeRobot's format, version 3.0, without the library: parquet files, videos and JSON.

Each episode has separate files for its data, its description and each video; the dataset is complete after each
episode. The format: https://huggingface.co/docs/lerobot/lerobot-dataset-v3. Shapes: T frames of an episode.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.datasets.statistics import FeatureStatistics
from embodichain.utils import ConfigError
from embodichain.utils.extras import install_extra
from embodichain.utils.video import VideoWriter

_CHUNK_SIZE = 1000
_FILE = "chunk-{chunk_index:03d}/file-{file_index:03d}"
_INDICES = ("timestamp", "frame_index", "episode_index", "index", "task_index")


def check_parquet() -> None:
    """Check that parquet files can be written.

    Raises:
        ConfigError: pyarrow is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(f"LeRobot datasets need pyarrow: {install_extra('lerobot')}")


class LeRobotWriter:
    """Writes a dataset, an episode at a time."""

    def __init__(self, root: Path, fps: int, robot_type: str, features: Mapping[str, Mapping[str, Any]]) -> None:
        """Begin a dataset.

        Args:
            features: features of a frame, by name: ``dtype`` (``video`` for images [H, W, 3]), ``shape`` and ``names``.

        Raises:
            ConfigError: the folder already has a dataset, or pyarrow is not installed.
        """
        check_parquet()
        if self.is_there(root):
            raise ConfigError(f"{root}: there is a dataset already")
        self.root = root
        self._fps = fps
        self._robot_type = robot_type
        self._features = {name: dict(feature) for name, feature in features.items()}
        self._tasks: list[str] = []
        self._statistics: dict[str, FeatureStatistics] = {}
        self.num_episodes = 0
        self.num_frames = 0

    @staticmethod
    def is_there(root: Path) -> bool:
        """Return whether a folder has a dataset."""
        return (root / "meta" / "info.json").exists()

    def add_episode(self, frames: Mapping[str, np.ndarray], task: str, extra: Mapping[str, Any]) -> None:
        """Write an episode.

        Args:
            frames: every feature by name, [T, ...].
            extra: further columns of the episode's description.

        Raises:
            OSError: a file cannot be written.
        """
        length = len(next(iter(frames.values())))
        if task not in self._tasks:
            self._tasks.append(task)
        chunk, file = divmod(self.num_episodes, _CHUNK_SIZE)
        where = _FILE.format(chunk_index=chunk, file_index=file)
        numbers = np.arange(length)
        columns = {name: frames[name] for name, feature in self._features.items() if feature["dtype"] != "video"}
        columns |= {
            "timestamp": (numbers / self._fps).astype(np.float32),
            "frame_index": numbers,
            "episode_index": np.full(length, self.num_episodes),
            "index": numbers + self.num_frames,
            "task_index": np.full(length, self._tasks.index(task)),
        }
        description: dict[str, Any] = {
            "episode_index": self.num_episodes,
            "tasks": [task],
            "length": length,
            "data/chunk_index": chunk,
            "data/file_index": file,
            "dataset_from_index": self.num_frames,
            "dataset_to_index": self.num_frames + length,
            "meta/episodes/chunk_index": chunk,
            "meta/episodes/file_index": file,
        }
        for name, feature in self._features.items():
            if feature["dtype"] == "video":
                self._write_video(self.root / "videos" / name / f"{where}.mp4", frames[name])
                times = {"from_timestamp": 0.0, "to_timestamp": length / self._fps}
                place = {"chunk_index": chunk, "file_index": file, **times}
                description |= {f"videos/{name}/{key}": value for key, value in place.items()}
        everything = dict(frames) | {name: columns[name] for name in _INDICES}
        statistics = {name: FeatureStatistics.of(np.asarray(values)) for name, values in everything.items()}
        for name, own in statistics.items():
            description |= {f"stats/{name}/{key}": value for key, value in own.as_data().items()}
            self._statistics[name] = self._statistics[name].merged(own) if name in self._statistics else own
        _write_table(self.root / "data" / f"{where}.parquet", {k: _column(v) for k, v in columns.items()})
        rows = {key: [value] for key, value in (description | dict(extra)).items()}
        _write_table(self.root / "meta" / "episodes" / f"{where}.parquet", rows)
        self.num_episodes += 1
        self.num_frames += length
        self._write_meta()

    def _write_video(self, path: Path, images: np.ndarray) -> None:
        _, height, width, _ = images.shape
        writer = VideoWriter(path, width, height, fps=self._fps)
        for image in images:
            writer.write(image)
        writer.close()

    def _write_meta(self) -> None:
        meta = self.root / "meta"
        indices = {name: {"dtype": "int64", "shape": [1], "names": None} for name in _INDICES}
        indices["timestamp"]["dtype"] = "float32"
        has_videos = any(feature["dtype"] == "video" for feature in self._features.values())
        info = {
            "codebase_version": "v3.0",
            "robot_type": self._robot_type,
            "total_episodes": self.num_episodes,
            "total_frames": self.num_frames,
            "total_tasks": len(self._tasks),
            "chunks_size": _CHUNK_SIZE,
            "data_files_size_in_mb": 100,
            "video_files_size_in_mb": 200,
            "fps": self._fps,
            "splits": {"train": f"0:{self.num_episodes}"},
            "data_path": f"data/{_FILE}.parquet",
            "video_path": f"videos/{{video_key}}/{_FILE}.mp4" if has_videos else None,
            "features": self._features | indices,
        }
        stats = {name: statistics.as_data() for name, statistics in self._statistics.items()}
        for name, content in (("info", info), ("stats", stats)):
            (meta / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        # The tasks are the table's index, as pandas would write it.
        index = {"name": None, "field_name": _INDEX, "pandas_type": "unicode", "numpy_type": "object", "metadata": None}
        numbers = {"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64"}
        columns = [numbers | {"metadata": None}, index]
        pandas = {"index_columns": [_INDEX], "column_indexes": [], "columns": columns, "pandas_version": "2.0.0"}
        table = {"task_index": list(range(len(self._tasks))), _INDEX: self._tasks}
        _write_table(meta / "tasks.parquet", table, {"pandas": json.dumps(pandas)})


_INDEX = "__index_level_0__"


def _column(values: np.ndarray) -> Any:
    """Return an array [T], or [T, 1] as one, as LeRobot has features of one number; [T, K] as a list of rows."""
    return values.reshape(-1) if values[0].size == 1 else list(values)


def _write_table(path: Path, columns: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    import pyarrow  # noqa: PLC0415 (optional extra)
    from pyarrow import parquet  # noqa: PLC0415

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(dict(columns)).replace_schema_metadata(metadata), path)
