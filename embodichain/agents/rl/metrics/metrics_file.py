"""Reads a run's ``metrics.jsonl``, which may be truncated, damaged or untrusted."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from embodichain.utils import logger
from embodichain.utils.files import read_bytes, write_atomically

_MOST_STEPS = 2**53  # float64 holds each number up to here


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows: ``step``, ``wall_time`` (s) and the metrics, numbers or None.

    A truncated last line is skipped; other lines that are no rows are skipped with a warning.

    Raises:
        OSError: the file cannot be read.
    """
    return [row for _, row in _read(path)]


def rewind_metrics(path: Path, step: int) -> tuple[float, int]:
    """Delete the lines after an environment step from a run's ``metrics.jsonl``, and those that are no rows.

    Returns:
        The last remaining line's ``wall_time`` (s), and the last step that was there before.
    """
    lines = _read(path) if path.exists() else []
    left = [(line, row) for line, row in lines if row["step"] <= step]
    write_atomically(path, lambda file: file.write(b"".join(line + b"\n" for line, _ in left)))
    last_step = max([step, *(row["step"] for _, row in lines)])
    return (left[-1][1]["wall_time"] if left else 0.0), last_step


def _read(path: Path) -> list[tuple[bytes, dict[str, Any]]]:
    """Return the lines that are rows, with their content."""
    lines = read_bytes(path).split(b"\n")
    read = [(line, _row(line)) for line in lines]
    damaged = [i for i, (_, row) in enumerate(read[:-1], start=1) if row is None]
    if damaged:
        which = f"line {damaged[0]}" if len(damaged) == 1 else f"{len(damaged)} lines, the first of them {damaged[0]},"
        logger.log_warning(f"{path}: {which} cannot be read as metrics, and is passed over")
    return [(line, row) for line, row in read if row is not None]


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not all(value is None or _is_number(value) for value in row.values()):
        return None
    step, wall_time = row.get("step"), row.get("wall_time")
    is_row = isinstance(step, int) and 0 <= step <= _MOST_STEPS and wall_time is not None
    return row if is_row else None


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= _MOST_STEPS if isinstance(value, int) else math.isfinite(value)
