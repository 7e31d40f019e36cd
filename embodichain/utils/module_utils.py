"""Finding functions and classes by name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from embodichain.utils.errors import ConfigError, unknown_name

__all__ = ["find_function_from_modules", "public_names"]


def public_names(modules: Sequence[str]) -> list[str]:
    """Return the public names (``__all__``) of modules, in their order."""
    return [name for module in modules for name in getattr(importlib.import_module(module), "__all__", [])]


def find_function_from_modules(name: str, modules: Sequence[str], raise_if_not_found: bool = True) -> Any:
    """Find a function or class.

    Args:
        name: a plain name, looked up in ``modules`` in their order, or a dotted path ``pkg.module.name``.
        modules: importable module names.
        raise_if_not_found: raise instead of returning None.

    Returns:
        The function or class, or None.

    Raises:
        ConfigError: nothing of that name is there; the message has the nearest name and all known ones.
    """
    if "." in name:
        module_name, _, attribute = name.rpartition(".")
        found = _from_dotted(module_name, attribute)
    else:
        found = next((f for m in modules if (f := getattr(importlib.import_module(m), name, None)) is not None), None)
    if found is None and raise_if_not_found:
        raise ConfigError(unknown_name("function", name, public_names(modules)))
    return found


def _from_dotted(module_name: str, attribute: str) -> Any:
    if not all(part.isidentifier() for part in module_name.split(".")):
        return None
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A missing dependency inside the user's module is a fault to show, not a name that is not there.
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise
        return None
    return getattr(module, attribute, None)
