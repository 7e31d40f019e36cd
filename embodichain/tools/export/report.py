"""An exported policy, as text."""

from __future__ import annotations

from embodichain.tools.export.run import Export

__all__ = ["format_export"]


def format_export(export: Export) -> str:
    """Return what was exported, for the screen."""
    lines = [
        f"parity     {export.observations} observations, actions differ by {export.difference:.2g} at most",
        f"inputs     {', '.join(export.inputs)}",
        f"outputs    {', '.join(export.outputs)}",
    ]
    return "\n".join([*lines, *(f"written    {file}" for file in export.files)])
