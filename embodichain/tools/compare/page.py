"""The page of a comparison: curves over steps, a table, and what can be told from chance."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from embodichain.tools.compare.groups import Groups
from embodichain.tools.compare.report import HEADINGS, cells, verdicts
from embodichain.tools.compare.statistics import interquartile_mean
from embodichain.tools.report.charts import Series, line_chart
from embodichain.tools.report.page import cards, document, table

_CURVES = {"eval/success_rate": "charts/success_rate_avg_100", "eval/avg_reward": "charts/episode_reward_avg_100"}
_POINTS = 200  # of a curve


def make_page(result: dict[str, Any], groups: Groups) -> str:
    """Return the page of what ``compare_runs`` returned."""
    metric = result["metric"]
    charts = [line_chart(metric, _curves(groups, metric), is_share=metric.endswith("success_rate"))]
    if metric in _CURVES:
        charts.append(line_chart("in training", _curves(groups, _CURVES[metric]), is_share="success" in metric))
    about = "interquartile mean over the runs; bands reach from the lowest run to the highest."
    last = table(HEADINGS, [cells(row) for row in result["groups"]])
    differences = "".join(f"<p>{escape(line)}</p>" for line in verdicts(result))
    body = f"{cards(charts)}<h2>Last value</h2>{last}<h2>Differences</h2>{differences}"
    return document("Comparison", f"<p>{escape(metric)}: {about}</p>", body)


def _curves(groups: Groups, metric: str) -> list[Series]:
    """Return each group's interquartile mean over steps, as far as all of its runs go."""
    lines = []
    for name, runs in groups.items():
        found = [run.series(metric) for run in runs]
        if any(not len(steps) for steps, _ in found):
            continue
        first, last = max(steps[0] for steps, _ in found), min(steps[-1] for steps, _ in found)
        at = np.linspace(first, last, _POINTS) if last > first else np.array([last])
        values = np.stack([np.interp(at, steps, series) for steps, series in found])
        lines.append(Series(name, at, interquartile_mean(values.T), values.min(axis=0), values.max(axis=0)))
    return lines
