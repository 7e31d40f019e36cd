"""What a comparison of trainings found, as text."""

from __future__ import annotations

from typing import Any

HEADINGS = ("group", "runs", "IQM", "95 % interval", "mean", "lowest", "highest")


def format_comparison(result: dict[str, Any]) -> str:
    """Return the result of ``compare_runs`` for the screen."""
    rows = [HEADINGS, *(cells(row) for row in result["groups"])]
    widths = [max(len(row[i]) for row in rows) + 2 for i in range(len(HEADINGS))]
    lines = ["".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([f"{result['metric']}, last value", "", *lines, "", *verdicts(result)]).rstrip()


def cells(row: dict[str, Any]) -> list[str]:
    """Return a group's row of the table below ``HEADINGS``."""
    low, high = row["interval_95"]
    interval = f"{low:.4g} to {high:.4g}" if row["runs"] > 1 else "-"
    numbers = [f"{row[key]:.4g}" for key in ("mean", "lowest", "highest")]
    return [row["group"], str(row["runs"]), f"{row['interquartile_mean']:.4g}", interval, *numbers]


def verdicts(result: dict[str, Any]) -> list[str]:
    """Return a line for each comparison and each note."""
    lines = []
    for one in result["comparisons"]:
        low, high = one["interval_95"]
        values = f"{one['difference']:+.4g} (95 % interval {low:+.4g} to {high:+.4g})"
        lines.append(f"{one['first']} - {one['second']}: {values}: {one['verdict']}")
    return lines + [f"note: {note}" for note in result["notes"]]
