"""A run's ``metrics.jsonl``: written, read, and drawn as the learning curve."""

import io
import json
import math
import time
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from embodichain.agents.rl.metrics.sinks import Sink
from embodichain.utils import read_bytes, write_atomically
from embodichain.utils.system import open_without_links


class JsonLinesSink(Sink):
    """One JSON object a line: ``step``, ``wall_time`` (s since the start) and the scalars; non-finite ones are null.

    Args:
        wall_time: of the last line of a resumed run's file, s.
    """

    name = "metrics.jsonl"

    def __init__(self, path: Path, wall_time: float = 0.0) -> None:
        self._path = path
        self._start = time.monotonic() - wall_time
        self._append("")

    def write(self, scalars: dict[str, float], step: int) -> None:
        """Append a line."""
        finite = {name: value if math.isfinite(value) else None for name, value in scalars.items()}
        line = {"step": step, "wall_time": round(time.monotonic() - self._start, 3), **finite}
        self._append(json.dumps(line) + "\n")

    def _append(self, text: str) -> None:
        with open(self._path, "a", encoding="utf-8", opener=open_without_links) as file:
            file.write(text)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows: ``step``, ``wall_time`` (s) and the metrics, numbers or None; other lines are skipped."""
    return [row for line in read_bytes(path).splitlines() if (row := _row(line)) is not None]


def rewind_metrics(path: Path, step: int) -> tuple[float, int]:
    """Delete the lines after an environment step from a run's ``metrics.jsonl``, and those that are no rows.

    Returns:
        The last remaining line's ``wall_time`` (s), and the last step that was there before.
    """
    rows = read_rows(path) if path.exists() else []
    left = [row for row in rows if row["step"] <= step]
    text = "".join(json.dumps(row) + "\n" for row in left)
    write_atomically(path, lambda file: file.write(text.encode()))
    return (left[-1]["wall_time"] if left else 0.0), max([step, *(row["step"] for row in rows)])


def _row(line: bytes) -> dict[str, Any] | None:
    """Return the content of a line; None if it is truncated or no row."""
    try:
        row = json.loads(line)
        is_row = row["step"] >= 0 and row["wall_time"] >= 0
        return row if is_row and all(value is None or math.isfinite(value) for value in row.values()) else None
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError):
        return None


def draw_learning_curve(metrics_path: Path, image_path: Path, title: str) -> None:
    """Draw return and success over environment steps, with the time since the run's begin along the top.

    Where the environment does not know success, the evaluations' return is in its place.
    """
    rows = read_rows(metrics_path)
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    figure.suptitle(title)
    left.set(xlabel="environment steps", ylabel="return (mean of 100 episodes)")
    _plot(left, rows, "charts/episode_reward_avg_100", "training", "-")
    logged = {name for row in rows for name in row}
    if "eval/avg_reward" in logged and logged.isdisjoint(("charts/success_rate_avg_100", "eval/success_rate")):
        right.set(xlabel="environment steps", ylabel="return of evaluations")
        _plot(right, rows, "eval/avg_reward", "evaluation", "o-")
    else:
        right.set(xlabel="environment steps", ylabel="success rate", ylim=(-0.03, 1.03))
        _plot(right, rows, "charts/success_rate_avg_100", "training (with exploration)", "-")
        _plot(right, rows, "eval/success_rate", "evaluation", "o-")
    times = [rows[round(i * (len(rows) - 1) / 4)] for i in range(5)] if len(rows) > 1 else []
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 200k, 1M: longer numbers lie on each other
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
        if times:
            top = axes.secondary_xaxis("top")
            top.set_xlabel("time, evaluations included")
            top.set_xticks([row["step"] for row in times], [f"{row['wall_time']:.0f} s" for row in times])
    image = io.BytesIO()
    figure.savefig(image, dpi=120, format="png")
    write_atomically(image_path, lambda file: file.write(image.getbuffer()))


def _plot(axes: Any, rows: list[dict[str, Any]], name: str, label: str, style: str) -> None:
    points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), style, label=label, markersize=4)
