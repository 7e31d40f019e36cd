"""What models from Hugging Face's transformers, an optional library, have in common."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from embodichain.utils import ConfigError
from embodichain.utils.errors import unknown_name

__all__ = ["need_transformers", "transformers_config"]


def need_transformers(model: str) -> None:
    """Check that the library is there.

    Args:
        model: what needs it, for the error.

    Raises:
        ConfigError: it is not.
    """
    if importlib.util.find_spec("transformers") is None:
        raise ConfigError(
            f"policy.vla_config.model_class: {model} needs transformers: pip install 'embodichain-mujoco[vla]'"
        )


def transformers_config(cls: type, key: str, values: Mapping[str, Any]) -> Any:
    """Build one of the library's configs; a key that it does not know would otherwise be kept and never read.

    Args:
        cls: its class.
        key: of the ``model_config``, for errors.
        values: by keyword.

    Raises:
        ConfigError: a key is unknown, or a value is not allowed.
    """
    place = f"policy.vla_config.model_config.{key}"
    known = [*cls().to_dict(), *getattr(cls, "attribute_map", {})]
    for name in values:
        if name not in known:
            raise ConfigError(f"{place}.{name}: {unknown_name('key', name, known)}")
    from huggingface_hub.errors import StrictDataclassError  # noqa: PLC0415 (optional extra)

    try:
        return cls(**values)
    except (TypeError, ValueError, StrictDataclassError) as error:
        raise ConfigError(f"{place}: {' '.join(str(error).split())}") from error
