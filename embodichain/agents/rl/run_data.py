"""Files of a run's folder, read back: objects, and the metrics as the learning curve."""

import io
import json
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from embodichain.agents.rl.metrics.sinks import read_rows
from embodichain.utils import read_text, write_atomically


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file of a run; empty if it is missing or damaged."""
    try:
        content = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


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
