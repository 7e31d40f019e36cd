"""The learning curve as an image."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from embodichain.agents.rl.metrics.metrics_file import read_rows
from embodichain.utils.files import write_atomically


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
    if any("eval/avg_reward" in row for row in rows) and not any(map(_has_success, rows)):
        right.set(xlabel="environment steps", ylabel="return of evaluations")
        _plot(right, rows, "eval/avg_reward", "evaluation", "o-")
    else:
        right.set(xlabel="environment steps", ylabel="success rate", ylim=(-0.03, 1.03))
        _plot(right, rows, "charts/success_rate_avg_100", "training (with exploration)", "-")
        _plot(right, rows, "eval/success_rate", "evaluation", "o-")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 200k, 1M: longer numbers lie on each other
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    _label_with_time(right, rows)
    _label_with_time(left, rows)
    image = io.BytesIO()
    figure.savefig(image, dpi=120, format="png")
    write_atomically(image_path, lambda file: file.write(image.getbuffer()))


def _has_success(row: dict[str, float]) -> bool:
    return not row.keys().isdisjoint(("charts/success_rate_avg_100", "eval/success_rate"))


def _plot(axes, rows: list[dict[str, float]], name: str, label: str, style: str) -> None:  # type: ignore[no-untyped-def]
    points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), style, label=label, markersize=4)


def _label_with_time(axes, rows: list[dict[str, float]]) -> None:  # type: ignore[no-untyped-def]
    """Put the wall time of a few steps along the top."""
    if len(rows) < 2:
        return
    top = axes.secondary_xaxis("top")
    top.set_xlabel("time, evaluations included")
    chosen = [rows[round(i * (len(rows) - 1) / 4)] for i in range(5)]
    top.set_xticks([row["step"] for row in chosen], [f"{row['wall_time']:.0f} s" for row in chosen])
