"""Played episodes, as text. Shapes: E episodes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def format_episodes(columns: Mapping[str, np.ndarray]) -> str:
    """Return a line for each episode of the columns [E] of an ``EpisodeTable``."""
    rows = zip(columns["success"], columns["return"], columns["length"], strict=True)
    return "\n".join(
        f"episode {i}  return {total:8.3f}  length {int(length):4}  {'success' if success else 'no success'}"
        for i, (success, total, length) in enumerate(rows)
    )
