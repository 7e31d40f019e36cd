"""``embodichain new``."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import re
from pathlib import Path

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks, whose names are taken)
from embodichain.commands.arguments import output_folder
from embodichain.lab.gym.registry import get_registered_env_ids
from embodichain.schema import schema_text
from embodichain.utils import ConfigError

EXAMPLES = ("task lift_cube", "task my_reach --into projects")

_LONGEST = 100  # characters of a name, of which files are named
_TEMPLATES = Path(__file__).parent / "task_template"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("what", choices=["task"], help="what to write")
    parser.add_argument("name", metavar="NAME", help="of the package: small letters, digits and underscores")
    parser.add_argument("--into", type=output_folder, default=Path(), metavar="FOLDER", help="where (default: here)")


def run(args: argparse.Namespace) -> int:
    """Write the package; return 0.

    Raises:
        ConfigError: the name cannot be used, is taken, or the folder cannot be written.
    """
    name, camel = args.name, "".join(part.capitalize() for part in args.name.split("_"))
    folder: Path = args.into / name
    _check(name, camel, folder)
    try:
        folder.mkdir(parents=True)
        for template in sorted(_TEMPLATES.glob("*.tmpl")):
            text = template.read_text(encoding="utf-8").replace("{{name}}", name).replace("{{camel}}", camel)
            (folder / template.stem).write_text(text, encoding="utf-8")
        (folder / "schema").mkdir()
        for kind in ("train", "env"):
            (folder / "schema" / f"{kind}.schema.json").write_text(schema_text(kind), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from error
    print(f"{folder} is there, with the task {camel}RL. From {folder.parent.absolute()}:\n")
    print(f"  embodichain train {name}/train.json --allow-import {name}")
    print(f"  embodichain play {name}/train.json --agent random --allow-import {name}")
    install = "" if importlib.util.find_spec("pytest") else "python -m pip install pytest && "
    print(f"  {install}python -m pytest {name}\n\n{folder / 'README.md'} says more.")
    return 0


def _check(name: str, camel: str, folder: Path) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ConfigError(f"'{name}': small letters, digits and underscores are needed, beginning with a letter")
    if keyword.iskeyword(name):
        raise ConfigError(f"'{name}': is a keyword of Python, which no package can be named by")
    if len(name) > _LONGEST:
        raise ConfigError(f"'{name[:20]}...': at most {_LONGEST} characters are allowed, got {len(name)}")
    if f"{camel}RL" in get_registered_env_ids():
        raise ConfigError(f"'{name}': there is a task {camel}RL already")
    if folder.exists():
        raise ConfigError(f"{folder}: is there already")
    if importlib.util.find_spec(name) is not None:
        raise ConfigError(f"'{name}': Python has a module of this name already, which would be taken instead")
