"""Checkpoints of behaviour clonings: checks of what they hold, and the policy in one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, with_config
from typing_extensions import TypedDict

from embodichain.agents.rl.checkpoint.content import check_fields
from embodichain.agents.rl.checkpoint.folder import CheckpointFolder
from embodichain.agents.rl.checkpoint.run_access import check_links
from embodichain.utils.files import is_run_folder

CLONING = "behaviour cloning"
"""The ``kind`` of these checkpoints; those of trainings have none."""


@with_config(ConfigDict(strict=True))
class _Demonstrations(TypedDict):
    episodes: int
    frames: int


@with_config(ConfigDict(strict=True))
class _State(TypedDict):
    step: int
    skipped: int
    loss: float
    policy: dict[str, Any]


@with_config(ConfigDict(strict=True))
class _Content(TypedDict):
    cloning: dict[str, Any]
    train_config: dict[str, Any]
    demonstrations: _Demonstrations
    seconds: float
    cloning_state: _State


_CONTENT = TypeAdapter(_Content)


def check_cloned(content: Mapping[str, Any], path: Path) -> None:
    """Check the types of an untrusted checkpoint's content.

    Raises:
        ConfigError: a field is missing or of a wrong type.
    """
    check_fields(content, _CONTENT, path, "cloning")


def find_cloned_policy(target: str) -> tuple[str, dict[str, Any], dict[str, Any]] | None:
    """Return the latest checkpoint of a cloning: its path, the policy's state and the policy's block of the config.

    Args:
        target: the folder of the cloning.

    Returns:
        None where that is no folder of a cloning.

    Raises:
        ConfigError: it cannot be read, or its folder has links that lead out of it.
    """
    folder = Path(target)
    if not is_run_folder(folder):
        return None
    check_links(folder)
    path, content = CheckpointFolder(folder / "checkpoints", "").load_latest()
    if content.get("kind") != CLONING:
        return None
    check_cloned(content, path)
    return str(path), content["cloning_state"]["policy"], content["train_config"].get("policy", {})
