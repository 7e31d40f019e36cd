"""Folders whose code configs may run, which the user has chosen: ``embodichain trust FOLDER``.

The code's location counts, never the location of the config that names it.
"""

from __future__ import annotations

import shlex
import sysconfig
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from embodichain.utils.errors import ConfigError
from embodichain.utils.files import is_run_folder, write_json
from embodichain.utils.system import config_folder
from embodichain.utils.utility import load_json

# Runs come from other people, and installed packages have functions that no config should be able to call.
_NEVER = frozenset({"outputs", "site-packages", "dist-packages"})
_INSTALLED = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")]


def trusted_folders() -> list[Path]:
    """Return the trusted folders, in the order in which they were trusted; a ConfigError if the list is damaged."""
    folder = config_folder()
    path = None if folder is None else folder / "trusted.json"
    if path is None or not path.exists():
        return []
    data = load_json(path)
    folders = data.get("folders") if isinstance(data, dict) else None
    if not isinstance(folders, list) or not all(isinstance(folder, str) for folder in folders):
        raise ConfigError(f"{path}: must have a list of folders; delete the file to begin anew")
    return [Path(folder) for folder in folders]


def trust(folder: Path) -> Path:
    """Remember a folder, without links in its path; return it.

    Raises:
        ConfigError: it is no folder, or too wide: one that contains the home folder.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: is no folder")
    folder = folder.resolve()
    if _is_too_wide(folder):
        raise ConfigError(f"{folder}: is too wide, every download would be trusted: name the folder of the package")
    _write(dict.fromkeys([*trusted_folders(), folder]))
    return folder


def distrust(folder: Path) -> Path:
    """Forget a folder, which need not exist any more; return it. A ConfigError if it is not trusted."""
    folders, folder = trusted_folders(), folder.resolve()
    if folder not in folders:
        raise ConfigError(f"{folder}: is not trusted. Trusted: {', '.join(map(str, folders)) or 'nothing'}")
    _write(each for each in folders if each != folder)
    return folder


def are_trusted(paths: Sequence[Path], folders: Sequence[Path]) -> bool:
    """Return whether there are files and all lie in the folders, links followed; none of a run or installed package."""
    return bool(paths) and all(any(_covers(folder, path.resolve()) for folder in folders) for path in paths)


def can_be_trusted(folder: Path) -> bool:
    """Return whether to advise to trust a folder: not one of a run, an installed package, or the home folder."""
    folder = folder.resolve()
    is_theirs = not _NEVER.isdisjoint(folder.parts) or any(map(is_run_folder, (folder, *folder.parents)))
    return _covers(folder, folder) and not is_theirs and not _is_too_wide(folder)


def trust_command(folder: Path) -> str:
    """Return the command that trusts a folder."""
    here = Path.cwd().resolve()
    inside = folder != here and folder.is_relative_to(here)
    return f"embodichain trust {shlex.quote(str(folder.relative_to(here) if inside else folder))}"


def _write(folders: Iterable[Path]) -> None:
    place = config_folder()
    if place is None:
        raise ConfigError("trust: this user has no home folder, in which the list of trusted folders could be")
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(place / "trusted.json", {"folders": [str(folder) for folder in folders]}, indent=2, private=True)


def _covers(folder: Path, path: Path) -> bool:
    """Return whether trusting a folder trusts the code at a path; both are without links."""
    if not path.is_relative_to(folder) or any(map(path.is_relative_to, [*_INSTALLED, Path(__file__).parents[1]])):
        return False
    between = [each for each in path.parents if each != folder and each.is_relative_to(folder)]
    return _NEVER.isdisjoint(path.relative_to(folder).parts) and not any(map(is_run_folder, between))


def _is_too_wide(folder: Path) -> bool:
    """Return whether a folder contains the home folder, or everything."""
    with suppress(RuntimeError):  # no home
        if Path.home().resolve().is_relative_to(folder):
            return True
    return folder == Path(folder.anchor)
