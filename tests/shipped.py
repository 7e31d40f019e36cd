"""The shipped training configs, and the environment configs that they name or have inside."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from embodichain.utils.utility import load_json

REPOSITORY = Path(__file__).resolve().parent.parent


def env_config_of(train: dict[str, Any]) -> dict[str, Any]:
    """Return the environment config of a training config from the repository's root."""
    named = train["trainer"]["gym_config"]
    return named if isinstance(named, dict) else load_json(REPOSITORY / named)


def _can_be_built(path: Path) -> bool:
    return find_spec("envpool") is not None or not env_config_of(load_json(path))["id"].startswith("envpool:")


TRAIN_CONFIGS = sorted(filter(_can_be_built, REPOSITORY.glob("configs/**/train_config*.json")))
"""Configs that can be built here: EnvPool's tasks need EnvPool."""
