"""Configs in the original system's format, as users have them."""

import json
from pathlib import Path
from typing import Any

_CONFIGS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
PUSH_CUBE, CART_POLE = _CONFIGS["push_cube"], _CONFIGS["cart_pole"]
PUSH_CUBE_TRAIN, CART_POLE_TRAIN_GRPO = _CONFIGS["push_cube_train"], _CONFIGS["cart_pole_train_grpo"]
