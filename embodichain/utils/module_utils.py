"""Finding functions and classes by name."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

from embodichain.utils.errors import ConfigError, unknown_name

__all__ = ["find_function_from_modules", "import_allowed_modules", "imports_allowed_by_environment", "public_names"]


def import_allowed_modules(modules: Sequence[str], allowed_prefixes: Sequence[str], place: str) -> None:
    """Import modules that a config names, if the user allowed them elsewhere.

    Args:
        modules: dotted names.
        allowed_prefixes: a module is allowed when it is one of these, or lies below one.
        place: of the list in the config, for messages.

    Raises:
        ConfigError: a module is not allowed, or not there; none has been imported then if one is not allowed.
    """
    for module in modules:
        if not any(module == prefix or module.startswith(f"{prefix}.") for prefix in allowed_prefixes):
            allowed = ", ".join(allowed_prefixes) or "nothing"
            raise ConfigError(
                f"{place}: '{module}' is not allowed to be imported (allowed: {allowed}). A config file alone does not "
                f"choose what code runs: pass --allow-import {module}, or set EMBODICHAIN_ALLOW_IMPORT={module}"
            )
    for module in modules:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise ConfigError(f"{place}: cannot import '{module}': {error}") from error


def imports_allowed_by_environment() -> list[str]:
    """Return the prefixes in the environment variable ``EMBODICHAIN_ALLOW_IMPORT``, which are comma-separated."""
    return [prefix for prefix in os.environ.get("EMBODICHAIN_ALLOW_IMPORT", "").split(",") if prefix]


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
