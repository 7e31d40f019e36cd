"""``embodichain trust``."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from embodichain.utils import ConfigError, write_json
from embodichain.utils.module_utils import is_too_wide, list_of_folders, trust_command, trusted_folders

EXAMPLES = ("my_task", "", "--remove my_task")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="FOLDER",
        help="remember it: configs may name the modules in it, which then run with your rights (default: list them)",
    )
    what.add_argument("--remove", type=Path, metavar="FOLDER", help="forget it")


def run(args: argparse.Namespace) -> int:
    """Remember, forget or list trusted folders; return 0."""
    if args.remove is not None:
        print(f"not trusted any more: {distrust(args.remove)}")
    elif args.folder is not None:
        folder = trust(args.folder)
        undo = trust_command(folder).replace("trust", "trust --remove", 1)
        print(f"trusted: {folder}. Configs may name the modules in it, also those of other people ('{undo}' undoes it)")
    else:
        print("\n".join(map(str, trusted_folders())) or "no folder is trusted")
    return 0


def trust(folder: Path) -> Path:
    """Remember a folder, without links in its path; return it. A ConfigError if it is none, or contains the home."""
    if not folder.is_dir():
        raise ConfigError(f"{folder}: is no folder")
    folder = folder.resolve()
    if is_too_wide(folder):
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


def _write(folders: Iterable[Path]) -> None:
    path = list_of_folders()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(path, {"folders": [str(folder) for folder in folders]}, indent=2, private=True)
