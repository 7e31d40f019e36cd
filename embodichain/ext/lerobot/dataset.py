"""Datasets in LeRobot's format, version 3.0, without the library: parquet files, videos and JSON.

Each written episode has separate files for its data, its description and each video; the dataset is complete after
each episode. In the end :meth:`LeRobotWriter.join` makes few files of those without videos. Files that are read may
hold several episodes; an episode's description names the files of its rows and images, and their start. The format:
https://huggingface.co/docs/lerobot/lerobot-dataset-v3.

Shapes: T frames of an episode; K numbers of a frame, or [3, 1, 1] for an image's channels; Q quantiles.
"""

import importlib.util
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from PIL import Image

from embodichain.utils import ConfigError, install_extra, read_bytes, read_text
from embodichain.utils.video import VideoReader, VideoWriter

_CHUNK_SIZE = 1000
_FILE = "chunk-{chunk_index:03d}/file-{file_index:03d}"
_INDEX = "__index_level_0__"
_INDICES = ("timestamp", "frame_index", "episode_index", "index", "task_index")
_QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
_LEVELS = np.arange(256) / 255.0  # of an image's channel


def check_parquet() -> None:
    """Raise a ConfigError unless pyarrow is installed."""
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(f"LeRobot datasets need pyarrow: {install_extra('lerobot')}")


class LeRobotWriter:
    """Writes a dataset, an episode at a time."""

    def __init__(self, root: Path, fps: int, robot_type: str, features: Mapping[str, Mapping[str, Any]]) -> None:
        """Begin a dataset.

        Args:
            features: features of a frame, by name: ``dtype`` (``video`` for images [H, W, 3]), ``shape`` and ``names``.
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
        """
        length = len(next(iter(frames.values())))
        if task not in self._tasks:
            self._tasks.append(task)
        where, place = _where(self.num_episodes), _indices(self.num_episodes)
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
            "dataset_from_index": self.num_frames,
            "dataset_to_index": self.num_frames + length,
            **{f"{part}/{key}": value for part in ("data", "meta/episodes") for key, value in place.items()},
        }
        for name, feature in self._features.items():
            if feature["dtype"] == "video":
                _, height, width, _ = frames[name].shape
                video = VideoWriter(self.root / "videos" / name / f"{where}.mp4", width, height, fps=self._fps)
                for image in frames[name]:
                    video.write(image)
                video.close()
                times = {"from_timestamp": 0.0, "to_timestamp": length / self._fps}
                description |= {f"videos/{name}/{key}": value for key, value in (place | times).items()}
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

    def join(self) -> None:
        """Join the data files, and the description files, into one each; no episode can be added after it.

        The new files come after the old ones, which are deleted last.
        """
        import pyarrow.parquet  # noqa: PLC0415 (optional extra)

        files = {part: sorted((self.root / part).glob("*/*.parquet")) for part in ("data", "meta/episodes")}
        for part, paths in files.items():
            table = pyarrow.concat_tables([pyarrow.parquet.read_table(path) for path in paths])
            columns = dict(zip(table.column_names, table.columns, strict=True))
            if part == "meta/episodes":
                place = _indices(self.num_episodes)
                columns |= {f"{each}/{key}": [number] * len(table) for each in files for key, number in place.items()}
            _write_table(self.root / part / f"{_where(self.num_episodes)}.parquet", columns)
        for path in [*files["meta/episodes"], *files["data"]]:
            path.unlink()

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


def _indices(number: int) -> dict[str, int]:
    """Return the indices of the chunk and the file of a file's number."""
    return dict(zip(("chunk_index", "file_index"), divmod(number, _CHUNK_SIZE), strict=True))


def _where(number: int) -> str:
    return _FILE.format(**_indices(number))


def _column(values: np.ndarray) -> Any:
    """Return an array [T], or [T, 1] as one, as LeRobot has features of one number; [T, K] as a list of rows."""
    return values.reshape(-1) if values[0].size == 1 else list(values)


def _write_table(path: Path, columns: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    import pyarrow.parquet  # noqa: PLC0415 (optional extra)

    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(dict(columns)).replace_schema_metadata(metadata), path)


@dataclass(frozen=True)
class FeatureStatistics:
    """Statistics of one feature over ``count`` frames; images are scaled to [0, 1], all pixels counting.

    Attributes:
        low, high, mean, square: minimum, maximum, mean, and mean of the squares, [K] or [3, 1, 1].
        quantiles: [Q, ...]. Several episodes have the mean of each one's, weighted by its frames, as LeRobot
            has them.
    """

    count: int
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    square: np.ndarray
    quantiles: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray) -> Self:
        """Return the statistics of an episode's values [T] (as K = 1), [T, K], or images [T, H, W, 3] uint8."""
        if values.ndim == 4:
            return cls._of_images(values)
        rows = values.reshape(len(values), -1).astype(np.float64)
        quantiles = np.quantile(rows, list(_QUANTILES.values()), axis=0, method="inverted_cdf")
        return cls(len(rows), rows.min(0), rows.max(0), rows.mean(0), (rows**2).mean(0), quantiles)

    @classmethod
    def _of_images(cls, images: np.ndarray) -> Self:
        # How often each level occurs has all that is asked, and is small however many pixels there are.
        counts = np.stack([np.bincount(channel.ravel(), minlength=256) for channel in np.moveaxis(images, 3, 0)])
        shares = counts.cumsum(axis=1) / counts[0].sum()
        quantiles = np.stack([_LEVELS[(shares >= share).argmax(axis=1)] for share in _QUANTILES.values()])
        low, high = np.where(counts > 0, _LEVELS, 1.0).min(axis=1), np.where(counts > 0, _LEVELS, 0.0).max(axis=1)
        mean, square = ((counts @ values) / counts[0].sum() for values in (_LEVELS, _LEVELS**2))
        low, high, mean, square = (part.reshape(3, 1, 1) for part in (low, high, mean, square))
        return cls(len(images), low, high, mean, square, quantiles.reshape(-1, 3, 1, 1))

    def merged(self, other: "FeatureStatistics") -> "FeatureStatistics":
        """Return the statistics of both's frames."""
        count = self.count + other.count
        own, others = self.count / count, other.count / count
        return FeatureStatistics(
            count,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            own * self.mean + others * other.mean,
            own * self.square + others * other.square,
            own * self.quantiles + others * other.quantiles,
        )

    def as_data(self) -> dict[str, Any]:
        """Return ``min``, ``max``, ``mean``, ``std``, ``count`` and the quantiles ``q01`` to ``q99`` as lists."""
        std = np.sqrt(np.maximum(self.square - self.mean**2, 0.0))
        arrays = {"min": self.low, "max": self.high, "mean": self.mean, "std": std, "count": np.array([self.count])}
        arrays |= dict(zip(_QUANTILES, self.quantiles, strict=True))
        return {name: array.tolist() for name, array in arrays.items()}


@dataclass(frozen=True)
class LeRobotEpisode:
    """An episode of a dataset.

    Attributes:
        frames: every feature by name, [T, ...]; videos as uint8 [T, H, W, 3].
        description: all columns of its description.
    """

    task: str
    frames: dict[str, np.ndarray]
    description: dict[str, Any]


def read_lerobot(root: str | Path) -> Iterator[LeRobotEpisode]:
    """Yield the episodes of a dataset in their order."""
    root = Path(root)
    info = read_info(root)
    videos: dict[str, VideoReader] = {}
    try:
        tables = [_read_table(path) for path in sorted((root / "meta" / "episodes").glob("**/*.parquet"))]
        rows = [dict(zip(t, values, strict=True)) for t in tables for values in zip(*t.values(), strict=True)]
        opened: dict[Path, dict[str, Any]] = {}
        for row in sorted(rows, key=lambda row: row["episode_index"]):
            path = root / _place(info["data_path"], row, "data")
            if path not in opened:
                opened = {path: _read_table(path)}  # the next episodes are in the same file or in later ones
            yield _episode(root, info, row, opened[path], videos)
    finally:
        for reader in videos.values():
            reader.close()


def read_info(root: Path) -> dict[str, Any]:
    """Return a dataset's ``meta/info.json``; a ConfigError if there is none, or of another version."""
    check_parquet()
    if not LeRobotWriter.is_there(root):
        raise ConfigError(f"{root}: no LeRobot dataset: there is no {root}/meta/info.json")
    info: dict[str, Any] = json.loads(read_text(root / "meta" / "info.json"))
    if info.get("codebase_version") != "v3.0":
        version = info.get("codebase_version")
        raise ConfigError(f"{root}: LeRobot datasets of version v3.0 are read, this one is of {version!r}")
    return info


def names_of(feature: Mapping[str, Any]) -> list[str] | None:
    """Return the names of a feature's numbers, which may stand in ``{"motors": [...]}``; None: it has none."""
    names = feature.get("names")
    return next(iter(names.values()), None) if isinstance(names, Mapping) else names


def image_size(feature: Mapping[str, Any]) -> tuple[int, int]:
    """Return height and width of an image or video feature; its ``names`` say whether the channels are first."""
    is_first = str((names_of(feature) or [""])[0]).startswith("channel")
    height, width = feature["shape"][1:3] if is_first else feature["shape"][:2]
    return height, width


def _episode(
    root: Path, info: dict[str, Any], row: dict[str, Any], table: dict[str, Any], videos: dict[str, VideoReader]
) -> LeRobotEpisode:
    """Return an episode; ``videos``: the open video file of each feature."""
    own = np.flatnonzero(np.asarray(table["episode_index"]) == row["episode_index"])
    if not len(own) or len(own) != row["length"]:
        raise ValueError(
            f"episode {row['episode_index']} has {len(own)} rows, and its description says {row['length']}"
        )
    frames: dict[str, np.ndarray] = {}
    for name, feature in info["features"].items():
        if feature["dtype"] != "video":
            values = [table[name][i] for i in own]
            if feature["dtype"] == "image":
                values = [np.asarray(Image.open(io.BytesIO(value["bytes"])).convert("RGB")) for value in values]
            frames[name] = np.asarray(values)
            continue
        path = root / _place(info["video_path"], row, f"videos/{name}", video_key=name)
        first = round(row[f"videos/{name}/from_timestamp"] * info["fps"])
        reader = videos.get(name)
        if reader is None or reader.path != path or reader.position > first:
            if reader is not None:
                reader.close()
            reader = videos[name] = VideoReader(path, *image_size(feature))
        reader.skip(first - reader.position)
        frames[name] = reader.read(len(own))  # no more are decoded
        if len(frames[name]) != len(own):
            raise ValueError(f"{path} has {len(frames[name])} of the {len(own)} images of an episode")
    return LeRobotEpisode(" ".join(row["tasks"]), frames, row)


def _place(template: str, row: dict[str, Any], part: str, **others: str) -> str:
    """Fill a path template with names in braces and zero-padded numbers (``{file_index:03d}``)."""
    values = {"chunk_index": row[f"{part}/chunk_index"], "file_index": row[f"{part}/file_index"], **others}
    return re.sub(r"\{(\w+)(?::0(\d)d)?\}", lambda m: str(values[m[1]]).zfill(int(m[2] or 0)), template)


def _read_table(path: Path) -> dict[str, Any]:
    from pyarrow import parquet  # noqa: PLC0415 (optional extra)

    table: dict[str, Any] = parquet.ParquetFile(io.BytesIO(read_bytes(path))).read().to_pydict()
    return table
