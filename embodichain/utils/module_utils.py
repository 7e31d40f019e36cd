"""Finding functions and classes by name, and their parameters."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from embodichain.utils.errors import ConfigError, nearest, placed, unknown_name
from embodichain.utils.module_search import folders_on_path, folders_to_trust, is_trusted, root_of
from embodichain.utils.trust import ask, trust_command

__all__ = [
    "add_allow_import",
    "add_import",
    "allowed_imports",
    "check_admitted",
    "check_free",
    "find_admitted",
    "find_function_from_modules",
    "import_allowed_modules",
    "import_named_modules",
    "import_options",
    "imports_allowed_by_environment",
    "is_admitted",
    "is_below",
    "public_names",
    "takes",
]


def import_allowed_modules(
    modules: Sequence[str], allowed_prefixes: Sequence[str], place: str, beside: Path = Path()
) -> None:
    """Import modules that a config names, if the user allowed them elsewhere.

    They are looked for on Python's path, in the working directory, in the config's folder, and in trusted folders.

    Args:
        allowed_prefixes: a module is allowed when it is one of these, lies below one, or has its code in trusted
            folders.
        beside: the config's folder.

    Raises:
        ConfigError: a module is not allowed, and none is imported; a module is missing; or the prefixes are one text.
    """
    if isinstance(allowed_prefixes, str):  # its letters would be prefixes
        raise ConfigError(f"allowed_imports: must be a list such as ['my_task'], got {allowed_prefixes!r}")
    with placed(f"{place}: "), folders_on_path([os.getcwd()]):
        roots = [root_of(module, beside, is_below(module, allowed_prefixes)) for module in modules]
    with folders_on_path([os.getcwd(), *(str(root) for root in roots if root is not None)]):
        refused = list(dict.fromkeys(module for module in modules if not is_admitted(module, allowed_prefixes)))
        if not refused:
            for module in modules:
                _import(module, place, beside)
            return
        folders = folders_to_trust(refused, beside)
    if not ask(folders or [], f"{place} names {', '.join(refused)}"):
        raise ConfigError(_refusal(refused, folders, allowed_prefixes, place))
    import_allowed_modules(modules, allowed_prefixes, place, beside)


def _import(module: str, place: str, beside: Path) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        folders = " and ".join(dict.fromkeys([os.getcwd(), str(beside.absolute())]))
        raise ConfigError(
            f"{place}: cannot import '{module}': {error} (looked for on Python's path and in {folders})"
        ) from error
    except SyntaxError as error:
        where = f"{error.filename}, line {error.lineno}"
        raise ConfigError(f"{place}: cannot import '{module}': {where}: {error.msg}") from error


def _refusal(
    refused: Sequence[str], folders: Sequence[Path] | None, allowed_prefixes: Sequence[str], place: str
) -> str:
    """Return the message for modules that are not allowed, all at once."""
    names, verb = ", ".join(f"'{module}'" for module in refused), "is" if len(refused) == 1 else "are"
    return (
        f"{place}: {names} {verb} not allowed to be imported (allowed: {', '.join(allowed_prefixes) or 'nothing'}). A "
        f"config file alone does not choose what code runs: {_how_to_allow(refused, folders)}"
    )


def _how_to_allow(modules: Sequence[str], folders: Sequence[Path] | None) -> str:
    """Return the commands that allow modules: once, by ``folders_to_trust``, or in each command."""
    commands = ["embodichain trust FOLDER"] if folders is None else map(trust_command, folders)
    once = "".join(f"trust its folder once by '{command}', " for command in commands)
    prefixes = _common_packages(modules)
    return f"{once}pass {_allowing(prefixes)}, or set EMBODICHAIN_ALLOW_IMPORT={shlex.quote(','.join(prefixes))}"


def _allowing(prefixes: Sequence[str]) -> str:
    return " ".join(f"--allow-import {shlex.quote(prefix)}" for prefix in prefixes)


def import_options(modules: Sequence[str]) -> str:
    """Return the ``--allow-import`` options that a command needs for a config's modules; "" if all are trusted."""
    return _allowing(_common_packages([module for module in modules if not is_trusted(module)]))


def _common_packages(modules: Sequence[str]) -> list[str]:
    """Return the innermost package that contains all modules of one top-level package, for each of these."""
    parts: dict[str, list[str]] = {}
    for module in modules:
        path = module.split(".")
        pairs = zip(parts.get(path[0], path), path, strict=False)
        parts[path[0]] = [ours for ours, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    return [".".join(path) for path in parts.values()]


def imports_allowed_by_environment() -> list[str]:
    """Return the prefixes in the environment variable ``EMBODICHAIN_ALLOW_IMPORT``, which are comma-separated."""
    return [prefix for prefix in os.environ.get("EMBODICHAIN_ALLOW_IMPORT", "").split(",") if prefix]


def add_allow_import(parser: argparse.ArgumentParser, what: str = "the config") -> None:
    """Declare the option ``--allow-import``, which :func:`allowed_imports` reads; ``what`` names modules."""
    parser.add_argument(
        "--allow-import",
        action="append",
        default=[],
        metavar="PREFIX",
        help=f"let {what} name modules below this one (also: EMBODICHAIN_ALLOW_IMPORT, comma-separated)",
    )


def add_import(parser: argparse.ArgumentParser) -> None:
    """Declare the option ``--import``, which :func:`import_named_modules` reads."""
    parser.add_argument(
        "--import",
        dest="modules",
        action="append",
        default=[],
        metavar="MODULE",
        help="import this module first, so that what it registers is known; it must be allowed",
    )


def import_named_modules(args: argparse.Namespace) -> None:
    """Import the modules that the command line names.

    Raises:
        ConfigError: one is not allowed or not there.
    """
    import_allowed_modules(args.modules, allowed_imports(args), "--import")


def allowed_imports(args: argparse.Namespace) -> list[str]:
    """Return the prefixes that the command line and the environment allow."""
    return [*args.allow_import, *imports_allowed_by_environment()]


_MAIN = {"__main__", "__mp_main__"}  # names of a script, in its own process and in child processes


def check_free(registered: Mapping[str, type], name: str, new: type, kind: str) -> None:
    """Check that no other class is registered by a name.

    The same class may register again: from a module or cell that runs again, or a script imported by name as well.

    Raises:
        ConfigError: one is.
    """
    old = registered.get(name, new)
    is_same_module = old.__module__ == new.__module__ or bool(_MAIN & {old.__module__, new.__module__})
    if not (is_same_module and old.__qualname__ == new.__qualname__):
        found = f"{old.__module__}.{old.__qualname__}"
        raise ConfigError(f"{kind} '{name}' is registered already, by {found}: choose another name, or override=True")


def is_below(module: str, prefixes: Sequence[str]) -> bool:
    """Return whether a module is one of the given ones, or lies below one."""
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def is_admitted(module: str, prefixes: Sequence[str]) -> bool:
    """Return whether a config may name a module: it is below a prefix, or its code is in trusted folders."""
    return is_below(module, prefixes) or is_trusted(module)


def check_admitted(name: str, admitted: Sequence[str], place: str) -> None:
    """Check that a config may name something by a dotted path in an imported module.

    Args:
        name: ``pkg.module.name``.
        admitted: allowed modules and prefixes of modules.

    Raises:
        ConfigError: the module is not allowed or not imported.
    """
    module = name.rpartition(".")[0]
    if not is_admitted(module, admitted):
        ways = _how_to_allow([module], folders_to_trust([module], Path()))
        if module not in sys.modules:  # it may lie in a trusted folder, where it is found when it is imported
            ways = (
                "list it in trainer.import_modules, pass --import, or import it in Python; and if its folder is not "
                f"trusted yet, {ways}"
            )
        raise ConfigError(
            f"{place}: '{name}' is in a module that is not allowed. A config file alone does not choose what code "
            f"runs: {ways} (in Python: the argument allowed_imports, or manager_modules of config_to_cfg)"
        )
    if module not in sys.modules:
        raise ConfigError(
            f"{place}: module '{module}' of '{name}' must be imported first: list it in trainer.import_modules, pass "
            "--import, or import it in Python"
        )


def find_admitted(name: str, modules: Sequence[str], allowed_imports: Sequence[str], place: str) -> Any:
    """Find a function or class that a config names, in allowed modules.

    Names that a module only imports count if its ``__all__`` lists them, or if they are from another allowed module.

    Args:
        name: a plain name, looked up in ``modules`` in their order, or a dotted path ``pkg.module.name``.
        modules: importable module names; they are imported.
        allowed_imports: prefixes of further modules, for dotted paths. These are not imported.

    Raises:
        ConfigError: the name is unknown or not allowed.
    """
    admitted = [*modules, *allowed_imports]
    module = name.rpartition(".")[0]
    if module in modules:
        importlib.import_module(module)
    if module:
        check_admitted(name, admitted, place)
    attribute = name.rpartition(".")[2]
    for candidate in [module] if module else modules:
        found = getattr(importlib.import_module(candidate), attribute, None)
        if callable(found) and not _is_alias(found) and _is_offered(found, attribute, candidate, admitted):
            return found
    if not module:
        hint = nearest(name, public_names(modules))
        raise ConfigError(f"{place}: unknown function '{name}'.{hint} 'embodichain list terms' has the shipped ones")
    known = [n for n, value in vars(sys.modules[module]).items() if n[0] != "_" and _is_made_in(value, module)]
    listed = ", ".join(sorted(known)) or "nothing"
    raise ConfigError(f"{place}: unknown function '{name}'.{nearest(attribute, known)} The module has: {listed}")


def _is_made_in(value: Any, module: str) -> bool:
    return (inspect.isroutine(value) or inspect.isclass(value)) and value.__module__ == module


def _is_alias(found: Any) -> bool:
    """Return whether ``found`` is a type alias such as ``list[int]``, which cannot be called."""
    return not inspect.isclass(found) and type(found).__module__ in ("types", "typing", "typing_extensions")


def _is_offered(found: Any, attribute: str, module: str, admitted: Sequence[str]) -> bool:
    if attribute in getattr(sys.modules[module], "__all__", ()):
        return True
    if inspect.isroutine(found) or inspect.isclass(found):
        return is_admitted(getattr(found, "__module__", None) or "", admitted)
    return True  # an object that the module has made


def public_names(modules: Sequence[str]) -> list[str]:
    """Return the public names (``__all__``) of modules, in their order."""
    return [name for module in modules for name in getattr(importlib.import_module(module), "__all__", [])]


def find_function_from_modules(name: str, modules: Sequence[str], raise_if_not_found: bool = True) -> Any:
    """Find a function or class.

    Args:
        name: a plain name, looked up in ``modules`` in their order, or a dotted path ``pkg.module.name``.
        raise_if_not_found: raise instead of returning None.

    Returns:
        The function or class, or None.

    Raises:
        ConfigError: the name is unknown; the message has the nearest and all known names.
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
        # A missing dependency of the user's module is an error, not an unknown name.
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise
        return None
    return getattr(module, attribute, None)


def takes(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function can be called with exactly ``count`` positional arguments, including ``self``."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    return True
