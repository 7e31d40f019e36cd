"""A run's config as the flat table of hyperparameters that loggers show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from embodichain.utils.plain_data import leaves_by_path

_BLOCKS = ("trainer", "policy", "algorithm")
_LEFT_OUT = ("trainer.events.", "trainer.loggers")


def hyperparameters(config: Mapping[str, Any]) -> dict[str, bool | float | str]:
    """Return the values of trainer, policy and algorithm by their dotted paths, and the task as ``env_id``.

    Lists and null are JSON texts.
    """
    leaves = leaves_by_path({block: config[block] for block in _BLOCKS if block in config})
    chosen = {path: value for path, value in leaves.items() if not path.startswith(_LEFT_OUT)}
    env_id = config.get("gym_config", {}).get("id")
    return ({} if env_id is None else {"env_id": str(env_id)}) | {path: _plain(v) for path, v in chosen.items()}


def _plain(value: Any) -> bool | float | str:
    return value if isinstance(value, bool | int | float | str) else json.dumps(value)
