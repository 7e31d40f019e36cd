"""Low-rank adapters (Hu et al., "LoRA", ICLR 2022) on a model, by the library peft."""

from __future__ import annotations

import importlib.util
from typing import Annotated, Any

from pydantic import Field, PositiveInt
from torch import nn

from embodichain.utils import ConfigError, configclass

__all__ = ["LoRACfg", "add_lora"]

_PLACE = "policy.vla_config.lora"


@configclass
class LoRACfg:
    """Adapters in place of training all of a model."""

    rank: PositiveInt = 16
    """Of each adapter."""
    alpha: PositiveInt = 32
    """An adapter's output counts alpha / rank times."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of an adapter's inputs that are left out in training. Anything but 0 makes a choice's log-probability
    differ from evaluation to evaluation."""
    target_modules: list[str] | None = None
    """Names of the linear layers that get one, as their paths end; null: the model's own ``lora_targets``."""
    trained_modules: list[str] | None = None
    """Modules that are trained as a whole, a copy of each; null: the model's own ``lora_trained``."""


def add_lora(model: nn.Module, cfg: LoRACfg) -> nn.Module:
    """Return a model with adapters, of which only they and the ``trained_modules`` learn; at first it does the same.

    Its ``disable_adapter()`` is a context in which it does what it did without them.

    Args:
        model: is changed.
        cfg: how.

    Raises:
        ConfigError: peft is not installed, or a module is not there.
    """
    targets = cfg.target_modules or list(getattr(model, "lora_targets", ()))
    trained = list(getattr(model, "lora_trained", ())) if cfg.trained_modules is None else cfg.trained_modules
    if not targets:
        raise ConfigError(f"{_PLACE}.target_modules: required, since {type(model).__name__} names none itself")
    paths = [name for name, _ in model.named_modules()]
    for key, names in (("target_modules", targets), ("trained_modules", trained)):
        for name in names:
            if not any(path == name or path.endswith(f".{name}") for path in paths):
                raise ConfigError(f"{_PLACE}.{key}: {type(model).__name__} has no module whose path ends in '{name}'")
    if importlib.util.find_spec("peft") is None:
        raise ConfigError(f"{_PLACE}: needs peft: pip install 'embodichain-mujoco[vla]'")
    import peft  # noqa: PLC0415 (optional extra)

    config = peft.LoraConfig(
        r=cfg.rank,
        lora_alpha=cfg.alpha,
        lora_dropout=cfg.dropout,
        target_modules=targets,
        modules_to_save=trained or None,
    )
    adapted: Any = peft.get_peft_model(model, config)
    result: nn.Module = adapted
    return result
