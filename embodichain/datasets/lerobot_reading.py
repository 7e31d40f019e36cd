"""Reading datasets in LeRobot's format, version 3.0, without the library. Shapes: T frames of an episode.

Files hold one or more episodes; an episode's description names the files of its rows and images, and their start. See
``lerobot_dataset.py`` for the format.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.datasets.lerobot_dataset import check_parquet
from embodichain.utils.errors import ConfigError
from embodichain.utils.files import read_bytes, read_text
from embodichain.utils.video import VideoReader


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
    """Yield the episodes of a dataset in their order.

    Raises:
        ConfigError: there is no dataset, it has another version, or a file cannot be read.
    """
    root = Path(root)
    info = read_info(root)
    videos: dict[str, VideoReader] = {}
    try:
        episodes = sorted(_rows(root / "meta" / "episodes"), key=lambda row: row["episode_index"])
        tables: dict[Path, dict[str, Any]] = {}
        for row in episodes:
            path = root / _place(info["data_path"], row, "data")
            if path not in tables:
                tables = {path: _read_table(path)}  # the next episodes are in the same file or in later ones
            yield _episode(root, info, row, tables[path], videos)
    except (ArithmeticError, AttributeError, OSError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(f"{root}: is no whole LeRobot dataset: {type(error).__name__}: {error}") from error
    finally:
        for reader in videos.values():
            reader.close()


def read_info(root: Path) -> dict[str, Any]:
    """Return a dataset's ``meta/info.json`` with described ``features``.

    Raises:
        ConfigError: there is no dataset, it has another version, or pyarrow is not installed.
    """
    check_parquet()
    path = root / "meta" / "info.json"
    try:
        info = json.loads(read_text(path))
    except OSError as error:
        raise ConfigError(f"{root}: is no LeRobot dataset: {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{root}: is no LeRobot dataset: {path} is not JSON: {error}") from error
    version = info.get("codebase_version") if isinstance(info, dict) else None
    if version != "v3.0":
        raise ConfigError(f"{root}: LeRobot datasets of version v3.0 are read, this one is of {version!r}")
    assert isinstance(info, dict)
    features = info.get("features")
    if not (isinstance(features, dict) and all(map(_is_feature, features.values()))):
        raise ConfigError(f"{path}: features: must be an object of features, each with a dtype, a video with its shape")
    return info


def _is_feature(feature: Any) -> bool:
    if not (isinstance(feature, dict) and isinstance(feature.get("dtype"), str)):
        return False
    shape = feature.get("shape")
    return feature["dtype"] != "video" or (
        isinstance(shape, list) and len(shape) == 3 and all(isinstance(size, int) and size > 0 for size in shape)
    )


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
            frames[name] = np.asarray([table[name][i] for i in own])
            continue
        path = root / _place(info["video_path"], row, f"videos/{name}", video_key=name)
        first = round(row[f"videos/{name}/from_timestamp"] * info["fps"])
        frames[name] = _images(videos, name, path, feature["shape"], first, len(own))
        if len(frames[name]) != len(own):
            raise ValueError(f"{path} has {len(frames[name])} of the {len(own)} images of an episode")
    return LeRobotEpisode(" ".join(row["tasks"]), frames, row)


def _images(
    videos: dict[str, VideoReader], name: str, path: Path, shape: list[int], first: int, count: int
) -> np.ndarray:
    """Return ``count`` images of a video; no more are decoded."""
    reader = videos.get(name)
    if reader is None or reader.path != path or reader.position > first:
        if reader is not None:
            reader.close()
        reader = videos[name] = VideoReader(path, *shape[:2])
    reader.skip(first - reader.position)
    return reader.read(count)


def _place(template: str, row: dict[str, Any], part: str, **others: str) -> str:
    """Fill a path template with names in braces and zero-padded numbers (``{file_index:03d}``)."""
    values = {"chunk_index": row[f"{part}/chunk_index"], "file_index": row[f"{part}/file_index"], **others}
    return re.sub(r"\{(\w+)(?::0(\d)d)?\}", lambda m: str(values[m[1]]).zfill(int(m[2] or 0)), template)


def _rows(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("**/*.parquet")):
        table = _read_table(path)
        rows += [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    return rows


def _read_table(path: Path) -> dict[str, Any]:
    from pyarrow import parquet  # noqa: PLC0415 (optional extra)

    table: dict[str, Any] = parquet.ParquetFile(io.BytesIO(read_bytes(path))).read().to_pydict()
    return table
