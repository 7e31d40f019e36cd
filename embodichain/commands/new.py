"""``embodichain new``."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
from pathlib import Path

from embodichain.commands.arguments import output_folder
from embodichain.tools.new import write_task
from embodichain.utils.doors import install_command

EXAMPLES = ("task lift_cube", "task my_reach --into projects")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("what", choices=["task"], help="what to write")
    parser.add_argument("name", metavar="NAME", help="of the package: small letters, digits and underscores")
    parser.add_argument("--into", type=output_folder, default=Path(), metavar="FOLDER", help="where (default: here)")


def run(args: argparse.Namespace) -> int:
    """Write the package; return 0."""
    name = args.name
    folder, task = write_task(name, args.into)
    print(f"{folder} is there, with the task {task}. From {folder.parent.absolute()}:\n")
    print(f"  embodichain trust {name}    # once: a config file alone does not choose what code runs")
    print(f"  embodichain train {name}/train.json")
    print(f"  embodichain play {name}/train.json --agent random")
    python = "python"
    if not importlib.util.find_spec("pytest"):
        print(f"  {install_command('pytest')}")
        python = shlex.quote(sys.executable)
    print(f"  {python} -m pytest {name}\n\n{folder / 'README.md'} says more.")
    return 0
