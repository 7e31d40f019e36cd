"""``embodichain trust``."""

from __future__ import annotations

import argparse
from pathlib import Path

from embodichain.utils.module_utils import distrust, trust, trust_command, trusted_folders

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
