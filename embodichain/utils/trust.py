"""The folders with code that configs may run, chosen by the user: ``embodichain trust FOLDER``.

The code's location counts, never the location of the config that names it.
"""

from __future__ import annotations

import shlex
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from embodichain.utils.errors import ConfigError
from embodichain.utils.files import is_run_folder, write_json
from embodichain.utils.system import config_folder
from embodichain.utils.utility import load_json

_FILE = "trusted.json"
# Runs come from other people, and installed packages have functions that no config should be able to call.
_NEVER = frozenset({"outputs", "site-packages", "dist-packages"})
_CAN_ASK: ContextVar[bool] = ContextVar("can_ask", default=False)


def trusted_folders() -> list[Path]:
    """Return the trusted folders, in the order in which they were trusted.

    Raises:
        ConfigError: the list cannot be read.
    """
    path = _list_path()
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
        ConfigError: no folder, or too wide: one that contains the home folder; or the list cannot be written.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: is no folder")
    folder = folder.resolve()
    if _is_too_wide(folder):
        raise ConfigError(f"{folder}: is too wide, every download would be trusted: name the folder of the package")
    folders = trusted_folders()
    if folder not in folders:
        _write([*folders, folder])
    return folder


def distrust(folder: Path) -> Path:
    """Forget a folder, which need not exist any more; return it.

    Raises:
        ConfigError: the folder is not trusted, or the list cannot be written.
    """
    folders, folder = trusted_folders(), folder.resolve()
    if folder not in folders:
        raise ConfigError(f"{folder}: is not trusted. Trusted: {', '.join(map(str, folders)) or 'nothing'}")
    _write([each for each in folders if each != folder])
    return folder


def is_trusted_path(path: str | Path, folders: Sequence[Path]) -> bool:
    """Return whether the code at a path lies in one of the folders: in none by a link, and not in a run's folder."""
    real = Path(path).resolve()
    return any(_covers(folder, real) for folder in folders)


def folder_to_offer(path: str | Path) -> Path | None:
    """Return the folder to trust so that a file, or a folder without code of its own, would be trusted.

    None: only ``embodichain trust`` itself accepts the folder, or none can be, as for installed packages and runs.
    """
    real = Path(path).resolve()
    folder = real if real.is_dir() else real.parent
    is_theirs = not _NEVER.isdisjoint(folder.parts) or any(map(is_run_folder, (folder, *folder.parents)))
    return folder if _covers(folder, real) and not is_theirs and not _is_too_wide(folder) else None


def trust_command(folder: Path) -> str:
    """Return the command that trusts a folder."""
    here = Path.cwd().resolve()
    inside = folder != here and folder.is_relative_to(here)
    return f"embodichain trust {shlex.quote(str(folder.relative_to(here) if inside else folder))}"


@contextmanager
def asking() -> Iterator[None]:
    """Let :func:`ask` ask in the block, which is a command that a person has typed."""
    token = _CAN_ASK.set(True)
    try:
        yield
    finally:
        _CAN_ASK.reset(token)


def ask(folders: Sequence[Path], what: str) -> bool:
    """Ask at the terminal whether to trust folders, and remember a yes; return whether all are trusted now.

    False where the user cannot be asked: outside :func:`asking`, or without a terminal.

    Args:
        what: description of the folders' code, in a line.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if not (_CAN_ASK.get() and folders and all(stream is not None and stream.isatty() for stream in streams)):
        return False
    print(f"{what}. Code in a trusted folder runs with all your rights, for any config that names it.", file=sys.stderr)
    for folder in folders:
        print(f"trust {folder}? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return False
        trust(folder)
    return True


def _list_path() -> Path | None:
    folder = config_folder()
    return None if folder is None else folder / _FILE


def _write(folders: Sequence[Path]) -> None:
    path = _list_path()
    if path is None:
        raise ConfigError("trust: this user has no home folder, in which the list of trusted folders could be")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_json(path, {"folders": [str(folder) for folder in folders]}, indent=2, private=True)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error


def _covers(folder: Path, path: Path) -> bool:
    """Return whether trusting a folder trusts the code at a path; both are without links."""
    if not path.is_relative_to(folder) or any(path.is_relative_to(each) for each in _installed()):
        return False
    if not _NEVER.isdisjoint(path.relative_to(folder).parts):
        return False
    between = (each for each in path.parents if each != folder and each.is_relative_to(folder))
    return not any(map(is_run_folder, between))


@cache
def _installed() -> frozenset[Path]:
    """Return the folders of the standard library, of installed packages, and of this one."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    places = [Path(sysconfig.get_path(name)) for name in names]
    return frozenset(place.resolve() for place in [*places, Path(__file__).parents[1]])


def _is_too_wide(folder: Path) -> bool:
    """Return whether a folder contains the home folder, or everything."""
    with suppress(RuntimeError):  # no home
        if Path.home().resolve().is_relative_to(folder):
            return True
    return folder == Path(folder.anchor)
