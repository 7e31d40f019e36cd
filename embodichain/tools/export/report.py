"""An exported policy, as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def format_export(export: Mapping[str, Any]) -> str:
    """Return what ``export_run`` returned, for the screen."""
    lines = [
        f"parity     {export['observations']} observations, actions differ by {export['difference']:.2g} at most",
        f"inputs     {', '.join(export['inputs'])}",
        f"outputs    {', '.join(export['outputs'])}",
    ]
    return "\n".join([*lines, *(f"written    {file}" for file in export["files"])])
