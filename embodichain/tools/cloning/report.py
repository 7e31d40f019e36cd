"""What came of a cloning, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def format_cloning(summary: Mapping[str, Any]) -> str:
    """Return the record of a cloning, for the screen."""
    loss = "not finite" if summary["loss"] is None else f"{summary['loss']:.3f} nats"
    lines = [
        f"model           {summary['model']}",
        f"demonstrations  {summary['episodes']} episodes, {summary['frames']} frames",
        f"training time   {summary['seconds']:.1f} s for {summary['steps']} steps, loss {loss}",
    ]
    if summary["skipped_steps"]:
        lines.append(f"skipped         {summary['skipped_steps']} steps, whose loss or gradient was not finite")
    if summary["success_rate"] is not None:
        low, high = summary["success_interval_95"]
        lines.append(f"success rate    {summary['success_rate']:.1%} (95 % interval {low:.1%} to {high:.1%})")
    return "\n".join(lines)
