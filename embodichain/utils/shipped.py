"""Location of the shipped configs: at the root of a checkout, or inside the installed package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent.parent

ROOT = _PACKAGE if (_PACKAGE / "configs").is_dir() else _PACKAGE.parent
"""The folder that paths in shipped configs begin at, such as ``configs/agents/rl/push_cube/gym_config.json``."""

TASK_CONFIGS = ROOT / "configs" / "agents" / "rl"
"""The configs of the shipped tasks, a folder each."""


def shipped_path(path: Path) -> Path:
    """Return a path that begins with ``configs`` and is not there as the shipped one; every other as it is."""
    return ROOT / path if path.parts[:1] == ("configs",) and not path.exists() and (ROOT / path).exists() else path
