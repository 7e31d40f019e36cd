"""Writes a package with a task, its configs and its tests, from templates."""

from __future__ import annotations

import importlib.util
import keyword
import re
from pathlib import Path

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks; their names are taken)
from embodichain.lab.gym.registry import get_registered_env_ids
from embodichain.schema import schema_text
from embodichain.utils import ConfigError

_LONGEST = 100  # characters of a name, of which files are named
_TEMPLATES = Path(__file__).parent / "task_template"


def write_task(name: str, into: Path) -> tuple[Path, str]:
    """Write the package ``name`` into a folder; return its folder and its task's registered name.

    Raises:
        ConfigError: the name cannot be used, is taken, or the folder cannot be written.
    """
    camel, folder = "".join(part.capitalize() for part in name.split("_")), into / name
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
    return folder, f"{camel}RL"


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
