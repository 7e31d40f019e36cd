"""What a sweep found, as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def format_sweep(result: dict[str, Any], config: str, overrides: Sequence[str]) -> str:
    """Return the result of ``sweep`` for the screen."""
    done = sorted((t for t in result["trials"] if t["value"] is not None), key=lambda t: -t["value"])
    failed = len(result["trials"]) - len(done)
    lines = [f"{result['metric']} of {len(done)} trials ({failed} failed), the best first", ""]
    lines += [
        f"  {t['value']:8.4g}  "
        + "  ".join(f"{path.rpartition('.')[2]} {value}" for path, value in t["params"].items())
        for t in done[:10]
    ]
    if result["best"] is not None:
        chosen = " ".join(f"{path}={json.dumps(value)}" for path, value in result["best"]["params"].items())
        lines += ["", "train with the best, on seeds that it was not chosen by, before you believe it:"]
        lines += [f"  embodichain train {config} {' '.join([*overrides, chosen])} trainer.seed=101"]
    return "\n".join([*lines, "", f"study    {result['study']}"])
