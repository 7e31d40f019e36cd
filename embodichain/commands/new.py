"""``embodichain new``: a package with a task, its configs and its tests, from templates."""

import argparse
import importlib.util
import keyword
import re
import shlex
import sys
from pathlib import Path

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks; their names are taken)
from embodichain.commands.arguments import output_folder
from embodichain.lab.gym.registry import get_registered_env_ids
from embodichain.schema import schema_text
from embodichain.utils import ConfigError, doors

EXAMPLES = ("task lift_cube", "task my_reach --into projects")

_TEMPLATES = Path(__file__).parents[1] / "tools" / "task_template"


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
        print(f"  {doors.install_command('pytest')}")
        python = shlex.quote(sys.executable)
    print(f"  {python} -m pytest {name}\n\n{folder / 'README.md'} says more.")
    return 0


def write_task(name: str, into: Path) -> tuple[Path, str]:
    """Write the package ``name`` into a folder; return its folder and its task's registered name.

    Raises:
        ConfigError: the name cannot be used, or is taken.
    """
    camel, folder = "".join(part.capitalize() for part in name.split("_")), into / name
    if not re.fullmatch(r"[a-z][a-z0-9_]{,99}", name) or keyword.iskeyword(name):
        raise ConfigError(f"'{name}': small letters, digits and underscores are needed, and no keyword of Python")
    if f"{camel}RL" in get_registered_env_ids():
        raise ConfigError(f"'{name}': there is a task {camel}RL already")
    if folder.exists():
        raise ConfigError(f"{folder}: is there already")
    if importlib.util.find_spec(name) is not None:
        raise ConfigError(f"'{name}': Python has a module of this name already, which would be taken instead")
    folder.mkdir(parents=True)
    for template in sorted(_TEMPLATES.glob("*.tmpl")):
        text = template.read_text(encoding="utf-8").replace("{{name}}", name).replace("{{camel}}", camel)
        (folder / template.stem).write_text(text, encoding="utf-8")
    (folder / "schema").mkdir()
    for kind in ("train", "env"):
        (folder / "schema" / f"{kind}.schema.json").write_text(schema_text(kind), encoding="utf-8")
    return folder, f"{camel}RL"
