"""Locations of modules, found without running any code."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path

from embodichain.utils.errors import ConfigError
from embodichain.utils.files import is_run_folder
from embodichain.utils.trust import folder_to_offer, is_trusted_path, trusted_folders


def module_paths(module: str, roots: Sequence[Path] = ()) -> list[str]:
    """Return the files that an import of a module runs, its packages' first; empty if it is not there.

    A folder stands for a package without a file.

    Args:
        roots: folders to look in, if Python's path has no such module.
    """
    paths: list[str] = []
    places: Sequence[str] = ()
    names = module.split(".")
    for depth in range(1, len(names) + 1):
        spec = _find(".".join(names[:depth]), places, roots)
        if spec is None or not _paths(spec):
            return []
        paths += _paths(spec)
        places = spec.submodule_search_locations or ()
    return paths


def is_trusted(module: str) -> bool:
    """Return whether all code that an import of a module runs lies in trusted folders."""
    folders = trusted_folders()
    return bool(folders) and _is_in(module_paths(module), folders)


def folders_to_trust(modules: Sequence[str], beside: Path) -> list[Path] | None:
    """Return the folders of modules' outermost packages; their trust would allow all imports.

    Args:
        beside: as for :func:`root_of`.

    Returns:
        Folders. Empty: not possible, as for installed packages; None: a module is not there.
    """
    folders: dict[Path | None, None] = {}
    for module in modules:
        paths = module_paths(module, _beside(beside))
        if not paths:
            return None
        folder = folder_to_offer(paths[0])
        folders[folder if folder is not None and _is_in(paths, [folder]) else None] = None
    return [] if None in folders else [folder for folder in folders if folder is not None]


def root_of(module: str, beside: Path, is_allowed: bool) -> Path | None:
    """Return the folder to look for a module in, beyond Python's path: a config's folder, or a trusted one.

    Modules on Python's path cannot be replaced by these.

    Args:
        beside: the config's folder; not a run's, which other people may have made.
        is_allowed: whether the module may be imported wherever it lies.

    Returns:
        A folder; None: the module is on Python's path, or nowhere where it may be.

    Raises:
        ConfigError: two trusted folders have it.
    """
    top, trusted = module.partition(".")[0], trusted_folders()
    if _has_code(_find(top)):
        return None
    for root in _beside(beside):
        spec = _find_in(top, [str(root)])
        if spec is not None and (is_allowed or _is_in(_paths(spec), trusted)):
            return root
    found: dict[str, Path] = {}
    for root in (each for folder in trusted for each in _around(folder)):
        spec = _find_in(top, [str(root)])
        if spec is not None and _is_in(_paths(spec), trusted):
            found.setdefault(os.path.realpath(_paths(spec)[0]), root)
    if len(found) > 1:
        raise ConfigError(f"'{top}' is in several trusted folders: {', '.join(found)}. Start the command beside one")
    return next(iter(found.values()), None)


def import_folders(modules: Sequence[str]) -> list[str]:
    """Return the folders in which another process finds these imported modules."""
    folders: list[str] = []
    for module in modules:
        spec = getattr(sys.modules.get(module.partition(".")[0]), "__spec__", None)
        if spec is not None:
            is_file_of_package = spec.has_location and spec.submodule_search_locations is not None
            folders += [str(Path(path).parents[int(is_file_of_package)]) for path in _paths(spec)]
    return list(dict.fromkeys(folders))


@contextmanager
def folders_on_path(folders: Sequence[str]) -> Iterator[None]:
    """Put folders last on Python's path, such as the working directory, which installed scripts do not search."""
    own = [os.getcwd() if folder == "" else folder for folder in sys.path]
    added = [folder for folder in dict.fromkeys(folders) if folder not in own]
    sys.path += added
    try:
        yield
    finally:
        for folder in added:
            sys.path.remove(folder)


def _find(name: str, places: Sequence[str] = (), roots: Sequence[Path] = ()) -> ModuleSpec | None:
    """Return a module's spec, as an import would find it.

    Args:
        places: module folders of its package.
        roots: folders to look in at last, for a module that is in no package.
    """
    if name in sys.modules:
        return getattr(sys.modules[name], "__spec__", None)
    if "." in name:
        return _find_in(name, places)
    try:
        on_path = importlib.util.find_spec(name)
    except ValueError:  # a name that cannot be one
        return None
    return on_path if _has_code(on_path) else _find_in(name, [str(root) for root in roots]) or on_path


def _find_in(name: str, places: Sequence[str]) -> ModuleSpec | None:
    """Return a module's spec in the given folders: in the first that has its code, else in all."""
    portions: list[str] = []
    for place in places:
        finder = pkgutil.get_importer(place)
        spec = None if finder is None else finder.find_spec(name)
        if _has_code(spec):
            return spec
        portions += (spec and spec.submodule_search_locations) or ()
    if not portions:
        return None
    package = ModuleSpec(name, None, is_package=True)
    package.submodule_search_locations = portions
    return package


def _has_code(spec: ModuleSpec | None) -> bool:
    """Return whether a module is there and is no mere folder."""
    return spec is not None and (spec.has_location or spec.submodule_search_locations is None)


def _is_in(paths: Sequence[str], folders: Sequence[Path]) -> bool:
    return bool(paths) and all(is_trusted_path(path, folders) for path in paths)


def _paths(spec: ModuleSpec) -> list[str]:
    if spec.has_location and spec.origin is not None:
        return [spec.origin]
    return list(spec.submodule_search_locations or ())


def _beside(folder: Path) -> list[Path]:
    """Return where the modules of a config in this folder may be; nowhere for a run's config.

    Not above the folder, where other people may write, unless it is a package.
    """
    if is_run_folder(folder):
        return []
    return _around(folder) if (folder / "__init__.py").exists() else [folder.absolute()]


def _around(folder: Path) -> list[Path]:
    """Return a folder, and the next one above it that is no package."""
    above = folder.absolute().parent
    while (above / "__init__.py").exists():
        above = above.parent
    return [folder.absolute(), above]
