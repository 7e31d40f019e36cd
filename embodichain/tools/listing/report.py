"""Lists, as text."""

from __future__ import annotations

from embodichain.tools.listing.run import Row


def format_rows(rows: list[Row]) -> str:
    """Return a line for each row, below the names of their blocks where they have any."""
    width = max((len(row["name"]) for row in rows), default=0) + 2
    lines: list[str] = []
    block = None
    for row in rows:
        if row.get("block") != block:
            block = row["block"]
            lines += ["", f"env.{block}"] if lines else [f"env.{block}"]
        lines.append(f"{row['name']:{width}}{row['about']}")
    return "\n".join(lines)
