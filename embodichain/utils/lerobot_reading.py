"""Reading datasets in LeRobot's format, version 3.0, without the library. Shapes: T frames of an episode.

Files may hold one episode or many: an episode's description says in which file its rows and its pictures are, and where
they begin. See ``lerobot_dataset.py`` for the format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embodichain.utils.errors import ConfigError
from embodichain.utils.lerobot_dataset import check_parquet
from embodichain.utils.video import read_video

__all__ = ["LeRobotEpisode", "read_lerobot"]


@dataclass(frozen=True)
class LeRobotEpisode:
    """An episode of a dataset.

    Attributes:
        task: the instruction in words.
        frames: every feature by name, [T, ...]; videos as uint8 [T, H, W, 3].
    """

    task: str
    frames: dict[str, np.ndarray]


def read_lerobot(root: str | Path) -> Iterator[LeRobotEpisode]:
    """Yield the episodes of a dataset in their order.

    Args:
        root: its folder.

    Raises:
        ConfigError: there is no dataset, it is of another version, or a file of it cannot be read.
    """
    check_parquet()
    root = Path(root)
    info = _read_info(root)
    try:
        episodes = sorted(_rows(root / "meta" / "episodes"), key=lambda row: row["episode_index"])
        tables: dict[Path, dict[str, Any]] = {}
        pictures: dict[Path, np.ndarray] = {}
        for row in episodes:
            path = root / _place(info["data_path"], row, "data")
            if path not in tables:
                tables = {path: _read_table(path)}  # the next episodes are in the same file, or never again
            yield _episode(root, info, row, tables[path], pictures)
    except (OSError, KeyError, ValueError, IndexError, TypeError) as error:
        raise ConfigError(f"{root}: is no whole LeRobot dataset: {type(error).__name__}: {error}") from error


def _read_info(root: Path) -> dict[str, Any]:
    path = root / "meta" / "info.json"
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{root}: is no LeRobot dataset: {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{root}: is no LeRobot dataset: {path} is not JSON: {error}") from error
    version = info.get("codebase_version") if isinstance(info, dict) else None
    if version != "v3.0":
        raise ConfigError(f"{root}: LeRobot datasets of version v3.0 are read, this one is of {version!r}")
    assert isinstance(info, dict)
    return info


def _episode(
    root: Path, info: dict[str, Any], row: dict[str, Any], table: dict[str, Any], pictures: dict[Path, np.ndarray]
) -> LeRobotEpisode:
    """Return an episode; ``pictures`` keeps the last video file of each feature."""
    own = np.flatnonzero(np.asarray(table["episode_index"]) == row["episode_index"])
    frames: dict[str, np.ndarray] = {}
    for name, feature in info["features"].items():
        if feature["dtype"] != "video":
            frames[name] = np.asarray([table[name][i] for i in own])
            continue
        path = root / _place(info["video_path"], row, f"videos/{name}", video_key=name)
        if path not in pictures:
            for old in [p for p in pictures if f"/{name}/" in p.as_posix()]:
                del pictures[old]
            height, width, _ = feature["shape"]
            pictures[path] = read_video(path, height, width)
        first = round(row[f"videos/{name}/from_timestamp"] * info["fps"])
        frames[name] = pictures[path][first : first + len(own)]
        if len(frames[name]) != len(own):
            raise ValueError(f"{path} has {len(frames[name])} of the {len(own)} pictures of an episode")
    return LeRobotEpisode(" ".join(row["tasks"]), frames)


def _place(template: str, row: dict[str, Any], part: str, **others: str) -> str:
    return template.format(chunk_index=row[f"{part}/chunk_index"], file_index=row[f"{part}/file_index"], **others)


def _rows(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("**/*.parquet")):
        table = _read_table(path)
        rows += [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    return rows


def _read_table(path: Path) -> dict[str, Any]:
    from pyarrow import parquet  # noqa: PLC0415 (optional extra)

    table: dict[str, Any] = parquet.ParquetFile(path).read().to_pydict()
    return table
