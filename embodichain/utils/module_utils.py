"""Finding functions and classes by name, and their parameters."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from embodichain.utils.errors import ConfigError, nearest, placed, unknown_name
from embodichain.utils.trust import are_trusted, can_be_trusted, trust_command, trusted_folders


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
    with placed(f"{place}: "):
        roots = {module: _root_of(module, beside, is_below(module, allowed_prefixes)) for module in modules}
    others = {module: root for module, root in roots.items() if not is_below(module, allowed_prefixes)}
    folders = trusted_folders() if others else []
    refused = {m: root for m, root in others.items() if root is None or not are_trusted(_code_of(m, root), folders)}
    if refused:
        names, verb = ", ".join(f"'{module}'" for module in refused), "is" if len(refused) == 1 else "are"
        raise ConfigError(
            f"{place}: {names} {verb} not allowed to be imported (allowed: {', '.join(allowed_prefixes) or 'nothing'})."
            f" A config file alone does not choose what code runs: {_how_to_allow(refused)}"
        )
    with folders_on_path([str(root) for root in roots.values() if root is not None]):
        for module in modules:
            try:
                importlib.import_module(module)
            except ModuleNotFoundError as error:
                places = " and ".join(dict.fromkeys([os.getcwd(), str(beside.absolute())]))
                raise ConfigError(
                    f"{place}: cannot import '{module}': {error} (looked for on Python's path and in {places})"
                ) from error


def _root_of(module: str, beside: Path, is_allowed: bool) -> Path | None:
    """Return the folder to import a module from: on Python's path, whose modules cannot be replaced, or another one.

    Args:
        beside: the config's folder.
        is_allowed: whether the module may be imported wherever it lies.

    Raises:
        ConfigError: two trusted folders have it.
    """
    top, trusted = module.partition(".")[0], trusted_folders()
    if found := import_folders([top]):
        return Path(found[0])
    # Other people may write above the config's folder; a config inside a package is another matter.
    here = [Path.cwd(), beside.absolute(), *([beside.absolute().parent] if (beside / "__init__.py").exists() else [])]
    theirs = [root for root in here if _code_of(top, root)]
    ours = [root for folder in trusted for root in (folder, folder.parent) if _code_of(top, root)]
    ours = list(dict.fromkeys(root for root in ours if are_trusted(_code_of(module, root), trusted)))
    if near := [root for root in theirs if is_allowed or root in ours]:
        return near[0]
    if len(ours) > 1:
        places = ", ".join(str(_code_of(top, root)[0].parent) for root in ours)
        raise ConfigError(f"'{top}' is in several trusted folders: {places}. Start the command beside one")
    return next(iter([*ours, *theirs]), None)


def _code_of(module: str, root: Path) -> list[Path]:
    """Return the files that an import of a module from a folder runs; of a package without any, its folder."""
    *packages, last = module.split(".")
    files, place = [], root
    for name in packages:
        place /= name
        files.append(place / "__init__.py" if (place / "__init__.py").exists() else place)
    own = (place / last / "__init__.py", place / f"{last}.py", place / last)  # in the order of Python's import
    found = [path for path in own if path.exists()]
    return [*files, found[0]] if found else []


def import_folders(modules: Sequence[str]) -> list[str]:
    """Return the folders on Python's path that have these modules, and those of imported ones."""
    folders: list[str] = []
    for module in modules:
        top = module.partition(".")[0]
        try:
            spec = sys.modules[top].__spec__ if top in sys.modules else importlib.util.find_spec(top)
        except ValueError:  # a name that cannot be one
            continue
        if spec is not None and spec.submodule_search_locations:
            folders += [str(Path(path).parent) for path in spec.submodule_search_locations]
        elif spec is not None and spec.origin is not None:
            folders.append(str(Path(spec.origin).parent))
    return list(dict.fromkeys(folders))


@contextmanager
def folders_on_path(folders: Sequence[str]) -> Iterator[None]:
    """Put folders last on Python's path, such as the working directory, which installed scripts do not search."""
    added = [folder for folder in dict.fromkeys(folders) if folder not in sys.path]
    sys.path += added
    try:
        yield
    finally:
        for folder in added:
            sys.path.remove(folder)


def _how_to_allow(modules: Mapping[str, Path | None]) -> str:
    """Return what to type to allow modules, which lie in these folders: once, or in each command."""
    tops = {root / module.partition(".")[0]: root for module, root in modules.items() if root is not None}
    folders = dict.fromkeys(path if path.is_dir() else root for path, root in tops.items())
    once = [f"trust its folder once by '{trust_command(folder)}', " for folder in folders if can_be_trusted(folder)]
    variable = f"EMBODICHAIN_ALLOW_IMPORT={shlex.quote(','.join(modules))}"
    return f"{''.join(once)}pass {_allowing(modules)}, or set {variable}"


def import_options(modules: Sequence[str]) -> str:
    """Return the ``--allow-import`` options that a command needs for a config's modules; "" if all are trusted."""
    return _allowing(module for module in modules if not is_trusted(module))


def _allowing(prefixes: Iterable[str]) -> str:
    return " ".join(f"--allow-import {shlex.quote(prefix)}" for prefix in prefixes)


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


def is_trusted(module: str) -> bool:
    """Return whether the code of an imported module, and of the packages that it is in, lies in trusted folders."""
    names = module.split(".")
    modules = [sys.modules.get(".".join(names[: depth + 1])) for depth in range(len(names))]
    files = [getattr(each, "__file__", None) for each in modules]
    return files[-1] is not None and are_trusted([Path(file) for file in files if file], trusted_folders())


def check_admitted(name: str, admitted: Sequence[str], place: str) -> None:
    """Check that a config may name something by a dotted path in an imported module.

    Args:
        name: ``pkg.module.name``.
        admitted: allowed modules and prefixes of modules.

    Raises:
        ConfigError: the module is not allowed or not imported.
    """
    module = name.rpartition(".")[0]
    if module in sys.modules and (is_below(module, admitted) or is_trusted(module)):
        return
    root = next(map(Path, import_folders([module])), None)
    allow = "" if is_below(module, admitted) else _how_to_allow({module: root})
    if module not in sys.modules:
        first = "list it in trainer.import_modules, pass --import, or import it in Python"
        message = f"{place}: module '{module}' of '{name}' must be imported first: {first}"
        raise ConfigError("; ".join(filter(None, [message, allow])))
    raise ConfigError(
        f"{place}: '{name}' is in a module that is not allowed. A config file alone does not choose what code runs: "
        f"{allow} (in Python: the argument allowed_imports, or manager_modules of config_to_cfg)"
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
    module, _, attribute = name.rpartition(".")
    candidates = [importlib.import_module(each) for each in modules if not module or each == module]
    if module:
        check_admitted(name, admitted, place)
        candidates = [sys.modules[module]]
    for candidate in candidates:
        found = getattr(candidate, attribute, None)
        if callable(found) and _is_offered(found, attribute, candidate, admitted):
            return found
    if not module:
        hint = nearest(name, public_names(modules))
        raise ConfigError(f"{place}: unknown function '{name}'.{hint} 'embodichain list terms' has the shipped ones")
    own = vars(candidates[0]).items()
    known = sorted(n for n, value in own if n[0] != "_" and getattr(value, "__module__", None) == module)
    listed = ", ".join(known) or "nothing"
    raise ConfigError(f"{place}: unknown function '{name}'.{nearest(attribute, known)} The module has: {listed}")


def _is_offered(found: Any, attribute: str, module: ModuleType, admitted: Sequence[str]) -> bool:
    home = getattr(found, "__module__", None) if inspect.isroutine(found) or inspect.isclass(found) else module.__name__
    return attribute in getattr(module, "__all__", ()) or is_below(home or "", admitted) or is_trusted(home or "")


def public_names(modules: Sequence[str]) -> list[str]:
    """Return the public names (``__all__``) of modules, in their order."""
    return [name for module in modules for name in getattr(importlib.import_module(module), "__all__", [])]


def find_function_from_modules(name: str, modules: Sequence[str], raise_if_not_found: bool = True) -> Any:
    """Find a function or class.

    Args:
        name: a plain name, looked up in ``modules`` in their order, or a dotted path ``pkg.module.name``.
        raise_if_not_found: raise a ConfigError with the nearest and all known names, instead of returning None.
    """
    module, _, attribute = name.rpartition(".")
    try:
        candidates = [importlib.import_module(each) for each in ([module] if module else modules)]
    except ModuleNotFoundError as error:
        # A missing dependency of the user's module is an error, not an unknown name.
        if not module or not f"{module}.".startswith(f"{error.name}."):
            raise
        candidates = []
    found = next((each for each in (getattr(m, attribute, None) for m in candidates) if each is not None), None)
    if found is None and raise_if_not_found:
        raise ConfigError(unknown_name("function", name, public_names(modules)))
    return found


def takes(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function can be called with exactly ``count`` positional arguments, including ``self``."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    return True
