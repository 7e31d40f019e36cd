"""What an evaluation found, as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def format_evaluation(result: dict[str, Any]) -> str:
    """Return the result of ``evaluate_run`` for the screen."""
    low, high = result["success_interval_95"]
    rows = {name.replace("_", " "): stats for name, stats in result["figures"].items()}
    width = max(len(name) for name in rows) + 2
    lines = [
        f"{Path(result['checkpoint']).name}, after {result['env_steps']:,} environment steps",
        "",
        f"success rate  {result['success_rate']:.1%} of {result['episodes']} episodes "
        f"(95 % interval {low:.1%} to {high:.1%})",
        "",
        f"{'an episode':{width}}{'mean':>10}  {'95 % interval':>22}{'std':>10}{'lowest':>10}{'highest':>10}",
    ]
    for name, stats in rows.items():
        start, end = stats["interval_95"]
        interval = f"{start:.4g} to {end:.4g}"
        others = "".join(f"{stats[key]:10.4g}" for key in ("std", "lowest", "highest"))
        lines.append(f"{name:{width}}{stats['mean']:10.4g}  {interval:>22}{others}")
    lines += ["", "rewards are summed over an episode, metrics are means over its steps or taken at its last step"]
    return "\n".join(lines)
