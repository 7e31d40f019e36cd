"""Learning curves of robots with legs over the environment steps of training, with exploration, as an image.

    python -m benchmarks.legs_curves outputs/go2_flat_* outputs/go2_rough_* outputs/g1_flat_* --picture curves.png

Runs of one task have one colour. Values are those of the episodes that end in an iteration, averaged over 9 iterations.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from embodichain.agents.rl.metrics.metrics_file import read_rows
from embodichain.utils.utility import load_json

PANELS = {
    "metrics/velocity_error_xy": "velocity error (m/s)",
    "metrics/velocity_error_yaw": "yaw rate error (rad/s)",
    "charts/episode_length_avg_100": "episode length (control steps)",
    "metrics/curriculum/level": "terrain level",
}
WINDOW = 9  # iterations


def draw(runs: list[Path]) -> Figure:
    """Return the image of the runs' curves."""
    figure = Figure(figsize=(10.0, 6.0), layout="constrained")
    FigureCanvasAgg(figure)
    panels = dict(zip(PANELS, figure.subplots(2, 2).flat, strict=True))
    colours: dict[str, str] = {}
    for run in runs:
        task = load_json(run / "config.json")["gym_config"]["id"]
        label = None if task in colours else task
        colour = colours.setdefault(task, f"C{len(colours)}")
        rows = read_rows(run / "metrics.jsonl")
        for name, axes in panels.items():
            steps, values = curve(rows, name)
            axes.plot(steps, values, color=colour, label=label, linewidth=1.2)
    for name, axes in panels.items():
        axes.set(xlabel="environment steps", ylabel=PANELS[name])
        axes.set_ylim(bottom=0.0)
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    next(iter(panels.values())).legend()
    return figure


def curve(rows: list[dict[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return steps and values of a metric, each the mean of the last iterations up to it; empty without the metric."""
    points = np.array([(row["step"], row[name]) for row in rows if row.get(name) is not None]).reshape(-1, 2)
    means = [points[max(0, end - WINDOW) : end, 1].mean() for end in range(1, len(points) + 1)]
    return points[:, 0], np.array(means)


def main() -> None:
    """Draw the runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs")
    parser.add_argument("--picture", type=Path, required=True, metavar="FILE")
    args = parser.parse_args()
    draw(args.runs).savefig(args.picture, dpi=100)


if __name__ == "__main__":
    main()
