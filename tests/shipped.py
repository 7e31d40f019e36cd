"""The shipped training configs, and the environment configs that they name or have inside."""

from pathlib import Path
from typing import Any

from embodichain.utils.utility import load_json

REPOSITORY = Path(__file__).resolve().parent.parent
TRAIN_CONFIGS = sorted(REPOSITORY.glob("configs/**/train_config*.json"))


def env_config_of(train: dict[str, Any]) -> dict[str, Any]:
    """Return the environment config of a training config from the repository's root."""
    named = train["trainer"]["gym_config"]
    return named if isinstance(named, dict) else load_json(REPOSITORY / named)
