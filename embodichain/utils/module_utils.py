"""Functions and classes by name, and whose code a config may name.

Allowed are modules below the prefixes of ``--allow-import`` and ``EMBODICHAIN_ALLOW_IMPORT``, and those in the folders
that ``embodichain trust`` remembers. There the code's location counts, never the location of the config that names it.
"""

import importlib.util
import inspect
import os
import shlex
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder
from numbers import Integral, Real
from pathlib import Path
from types import ModuleType
from typing import Any

from embodichain.utils import doors
from embodichain.utils.errors import ConfigError, nearest, unknown_name
from embodichain.utils.files import is_run_folder
from embodichain.utils.utility import load_json

# Runs come from other people, and installed packages have functions that no config should be able to call.
_NEVER = frozenset({"outputs", "site-packages", "dist-packages"})
_PLAIN = {"bool": bool, "int": Integral, "float": Real, "str": str}  # annotations of arguments
_PACKAGE = Path(__file__).resolve().parents[1]
_INSTALLED = [*(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")), _PACKAGE]
_MAIN = {"__main__", "__mp_main__"}  # names of a script, in its own process and in child processes


# --- Trusted folders ---


def list_of_folders() -> Path:
    """Return the file that names the trusted folders."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.config"), "embodichain", "trusted.json")


def trusted_folders() -> list[Path]:
    """Return the trusted folders, in the order in which they were trusted."""
    path = list_of_folders()
    return [Path(folder) for folder in load_json(path)["folders"]] if path.is_absolute() and path.exists() else []


def trust_command(folder: Path) -> str:
    """Return the command that trusts a folder."""
    here = Path.cwd().resolve()
    inside = folder != here and folder.is_relative_to(here)
    return f"embodichain trust {shlex.quote(str(folder.relative_to(here) if inside else folder))}"


def _are_trusted(files: Sequence[Path], folders: Sequence[Path]) -> bool:
    """Return whether there are files and all lie in the folders, links followed; none of a run or installed package."""
    return bool(files) and all(any(_covers(folder, file.resolve()) for folder in folders) for file in files)


def _covers(folder: Path, path: Path) -> bool:
    """Return whether trusting a folder trusts the code at a path; both are without links."""
    if not path.is_relative_to(folder) or any(map(path.is_relative_to, _INSTALLED)):
        return False
    between = [each for each in path.parents if each != folder and each.is_relative_to(folder)]
    return _NEVER.isdisjoint(path.relative_to(folder).parts) and not any(map(is_run_folder, between))


def is_too_wide(folder: Path) -> bool:
    """Return whether a folder is a root, or contains the home."""
    return folder == Path(folder.anchor) or Path(os.path.expanduser("~")).resolve().is_relative_to(folder)


# --- Imports ---


def import_allowed_modules(
    modules: Sequence[str], allowed_prefixes: Sequence[str], place: str, beside: Path = Path()
) -> None:
    """Import modules that a config names, if the user allowed them elsewhere.

    They are looked for on Python's path, in the working directory, in the config's folder, and in trusted folders.

    Args:
        allowed_prefixes: a module is allowed when it is one of these, lies below one, or has its code in trusted
            folders.
        beside: the config's folder.
    """
    if isinstance(allowed_prefixes, str):  # its letters would be prefixes
        raise ConfigError(f"allowed_imports: must be a list such as ['my_task'], got {allowed_prefixes!r}")
    # Other people may write above the config's folder; a config inside a package is another matter.
    near = [Path.cwd(), beside.absolute(), *([beside.absolute().parent] if (beside / "__init__.py").exists() else [])]
    folders = trusted_folders()
    near += [root for folder in folders for root in (folder, folder.parent)]
    roots: list[str] = []
    refused: dict[str, list[Path]] = {}
    for module in modules:
        is_allowed = is_below(module, allowed_prefixes)
        # No file there replaces an installed module.
        is_installed = _find(module.partition(".")[0]) is not None
        there: list[str | None] = [None] if is_installed else [*map(str, near)]
        code = [(root, files) for root in there if (files := _files(module, root))]
        allowed = [root for root, files in code if is_allowed or _are_trusted(files, folders)]
        if allowed:
            roots += filter(None, allowed[:1])
        elif not is_allowed:
            refused[module] = code[0][1] if code else []
    if refused:
        names, verb = ", ".join(f"'{module}'" for module in refused), "is" if len(refused) == 1 else "are"
        raise ConfigError(
            f"{place}: {names} {verb} not allowed to be imported (allowed: {', '.join(allowed_prefixes) or 'nothing'})."
            f" A config file alone does not choose what code runs: {_how_to_allow(refused)}"
        )
    with folders_on_path(roots):
        for module in modules:
            try:
                importlib.import_module(module)
            except ModuleNotFoundError as error:
                searched = " and ".join(dict.fromkeys([os.getcwd(), str(beside.absolute())]))
                raise ConfigError(
                    f"{place}: cannot import '{module}': {error} (looked for on Python's path and in {searched})"
                ) from error


def _find(name: str, path: Sequence[str] | None = None) -> ModuleSpec | None:
    """Return the spec of a module without dots in a path, by default Python's; None if it is not there."""
    if path is not None:
        return PathFinder.find_spec(name, path)
    try:
        return importlib.util.find_spec(name)
    except ValueError:  # a name that cannot be one
        return None


def _files(module: str, folder: str | None = None) -> list[Path]:
    """Return the files that an import of a module from a folder (None: from Python's path) runs; none of them runs.

    Empty if it is not there, or built in.
    """
    files = []
    path = None if folder is None else [folder]
    for name in module.split("."):
        spec = _find(name, path)
        if spec is None or not (spec.has_location or spec.submodule_search_locations):
            return []
        path = list(spec.submodule_search_locations or [])
        files.append(Path(spec.origin or path[0]))  # a package without a file is a folder
    return files


def import_folders(modules: Sequence[str]) -> list[str]:
    """Return the folders that these imported modules were found in."""
    tops = [sys.modules.get(module.partition(".")[0]) for module in modules]
    places = [place for top in tops for place in getattr(top, "__path__", [getattr(top, "__file__", None)])]
    return list(dict.fromkeys(str(Path(place).parent) for place in places if place is not None))


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


def _how_to_allow(modules: Mapping[str, Sequence[Path]]) -> str:
    """Return what to type to allow modules with their files: once, or in each command."""
    tops = [files[0].resolve() for files in modules.values() if files]
    folders = dict.fromkeys(top if top.is_dir() else top.parent for top in tops)
    advised = [folder for folder in folders if _covers(Path(folder.anchor), folder / "x") and not is_too_wide(folder)]
    once = [f"trust its folder once by '{trust_command(folder)}', " for folder in advised]
    variable = f"EMBODICHAIN_ALLOW_IMPORT={shlex.quote(','.join(modules))}"
    return f"{''.join(once)}pass {_allowing(modules)}, or set {variable}"


def _allowing(prefixes: Iterable[str]) -> str:
    return " ".join(f"--allow-import {shlex.quote(prefix)}" for prefix in prefixes)


def is_below(module: str, prefixes: Sequence[str]) -> bool:
    """Return whether a module is one of the given ones, or lies below one."""
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def is_trusted(module: str) -> bool:
    """Return whether the code of an imported module, and of the packages that it is in, lies in trusted folders."""
    names = module.split(".")
    modules = [sys.modules.get(".".join(names[: depth + 1])) for depth in range(len(names))]
    files = [getattr(each, "__file__", None) for each in modules]
    return files[-1] is not None and _are_trusted([Path(file) for file in files if file], trusted_folders())


# --- Options of commands ---


def import_options(modules: Sequence[str]) -> str:
    """Return the ``--allow-import`` options that a command needs for a config's modules; "" if all are trusted."""
    return _allowing(module for module in modules if not is_trusted(module))


def imports_allowed_by_environment() -> list[str]:
    """Return the prefixes in the environment variable ``EMBODICHAIN_ALLOW_IMPORT``, which are comma-separated."""
    return [prefix for prefix in os.environ.get("EMBODICHAIN_ALLOW_IMPORT", "").split(",") if prefix]


# --- Names ---


def check_arguments(func: Callable[..., Any], num_passed: int, given: Mapping[str, Any]) -> None:
    """Check the arguments that a config gives a function: their names, and the values of ``_PLAIN`` annotations.

    Others are not checked: for many, such as functions, JSON has no values.

    Args:
        num_passed: number of arguments that the caller passes before.
    """
    signature = inspect.signature(func)
    try:
        signature.bind(*range(num_passed), **given)
    except TypeError as error:
        raise ConfigError(str(error)) from error
    for name, value in given.items():
        argument = signature.parameters.get(name)
        if argument is None or value is argument.default:
            continue
        kind = str(getattr(argument.annotation, "__name__", argument.annotation))  # after a __future__ import, text
        plain = _PLAIN.get(kind, object)
        is_other_number = isinstance(value, bool) and plain in (Integral, Real)
        if is_other_number or not isinstance(value, plain):
            raise ConfigError(f"{name} must be of type {kind}, not {value!r}")


def check_free(registered: Mapping[str, type], name: str, new: type, kind: str) -> None:
    """Raise a ConfigError if another class is registered by a name.

    The same class may register again: from a module or cell that runs again, or a script imported by name as well.
    """
    old = registered.get(name, new)
    is_same_module = old.__module__ == new.__module__ or bool(_MAIN & {old.__module__, new.__module__})
    if not (is_same_module and old.__qualname__ == new.__qualname__):
        found = f"{old.__module__}.{old.__qualname__}"
        raise ConfigError(f"{kind} '{name}' is registered already, by {found}: choose another name, or override=True")


def check_admitted(name: str, admitted: Sequence[str], place: str) -> None:
    """Raise a ConfigError unless ``pkg.module.name`` is in an imported module, trusted or below one of ``admitted``."""
    module = name.rpartition(".")[0]
    is_named = is_below(module, admitted)
    if module in sys.modules and (is_named or is_trusted(module)):
        return
    allow = "" if is_named else _how_to_allow({module: _files(module)})
    if module not in sys.modules:
        first = "list it in trainer.import_modules, pass --import, or import it in Python"
        message = f"{place}: module '{module}' of '{name}' must be imported first: {first}"
        raise ConfigError("; ".join(filter(None, [message, allow])))
    raise ConfigError(
        f"{place}: '{name}' is in a module that is not allowed. A config file alone does not choose what code runs: "
        f"{allow} (in Python: the argument allowed_imports, or manager_modules of config_to_cfg)"
    )


def find_admitted(name: str, modules: Sequence[str], allowed_imports: Sequence[str], place: str) -> Any:
    """Find a function or class that a config names, in allowed modules; a ConfigError without one.

    Names that a module only imports count if its ``__all__`` lists them, or if they are from another allowed module.
    An installed package that adds tasks by entry points is allowed.

    Args:
        name: a plain name, looked up in ``modules`` in their order, or a dotted path ``pkg.module.name``.
        modules: importable module names; they are imported.
        allowed_imports: prefixes of further modules, for dotted paths. These are not imported.
    """
    packages = {entry.module.partition(".")[0] for entry in doors.entries(doors.TASKS).values()} - {"embodichain"}
    admitted = [*modules, *allowed_imports, *sorted(packages)]
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
    """Return the public names of modules, in their order: of ``__all__``, or the terms that they define."""
    found = [importlib.import_module(module) for module in modules]
    return [name for module in found for name in getattr(module, "__all__", None) or own_terms(module)]


def own_terms(module: ModuleType) -> list[str]:
    """Return the names of a module's likely terms: its functions of ``env``, and its classes made by ``(cfg, env)``."""

    def is_term(value: Any) -> bool:
        is_class = inspect.isclass(value)
        if not (is_class or inspect.isfunction(value)) or value.__module__ != module.__name__:
            return False
        with suppress(TypeError, ValueError):  # no signature
            names = list(inspect.signature(value.__init__ if is_class else value).parameters)
            return names[:3] == ["self", "cfg", "env"] if is_class else names[:1] == ["env"]
        return False

    return [name for name, value in vars(module).items() if not name.startswith("_") and is_term(value)]


def find_function_from_modules(name: str, modules: Sequence[str], raise_if_not_found: bool = True) -> Any:
    """Find a function or class by a plain name, in ``modules`` in their order, or by a dotted path ``pkg.module.name``.

    If there is none, raise a ConfigError with the nearest and all known names, or return None.
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
