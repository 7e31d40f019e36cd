"""Other layouts of configs, converted to ours before the parse; see the README of this folder."""

from typing import Any, Literal

from embodichain.ext.upstream import environment, training


def convert(data: dict[str, Any], kind: Literal["training", "environment"]) -> dict[str, Any]:
    """Return a config's plain data, which are changed, in our layout; a door names this function."""
    return training.convert_training(data) if kind == "training" else environment.convert_environment(data)
