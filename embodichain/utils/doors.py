"""Installed packages: doors, shipped configs, and the commands that install extras.

Doors are entry points by which extensions add tasks, policies, commands and the like.

A package declares them in its ``pyproject.toml``, ours as much as anyone's::

    [project.entry-points."embodichain.policies"]
    my_policy = "my_package.policies:MyPolicy"
"""

import importlib.util
import re
import shlex
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, requires
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from embodichain.utils import logger

DISTRIBUTION = "embodichain-mujoco"

_PACKAGE = Path(__file__).parent.parent
ROOT = _PACKAGE if (_PACKAGE / "configs").is_dir() else _PACKAGE.parent
"""The folder that paths in shipped configs begin at, such as ``configs/agents/rl/push_cube/gym_config.json``."""

TASK_CONFIGS = ROOT / "configs" / "agents" / "rl"
"""The configs of the shipped tasks, a folder each."""

TASKS = "embodichain.tasks"
"""Environment id -> module that registers it when it is imported."""
ENV_SOURCES = "embodichain.env_sources"
"""Name -> ``EnvSource``: environments of another library by their ids."""
POLICIES, NETWORKS, ALGORITHMS = "embodichain.policies", "embodichain.networks", "embodichain.algorithms"
"""Name -> class, as ``register_policy``, ``register_network`` and ``register_algo`` take it."""
CONFIG_CONVERTERS = "embodichain.config_converters"
"""Name -> ``convert(data, kind)``: the data of a ``"training"`` or ``"environment"`` config in our layout."""
DATASETS = "embodichain.datasets"
"""``lerobot``: the function that reads demonstrations, ``(folder, num_episodes, task, keys) -> Demonstrations``."""
RUN_SOURCES = "embodichain.run_sources"
"""Prefix of a run's name, as in ``hf:user/name`` -> function ``(user/name) -> folder of the run``."""
REPORTS = "embodichain.reports"
"""File name -> function that writes it into a run's folder at the end of a training."""
COMMANDS = "embodichain.commands"
"""Name -> ``embodichain.commands.Command``."""


@cache
def entries(group: str) -> dict[str, EntryPoint]:
    """Return a door's entry points by name; of one name the first on Python's path. Nothing is imported.

    Entries of this package with a deleted folder are left out.
    """
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        if not entry.module.startswith("embodichain.") or _exists(entry.module):
            found.setdefault(entry.name, entry)
    return found


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def load(group: str, name: str) -> Any:
    """Import and return an entry point's object, or None where the door has none of this name."""
    entry = entries(group).get(name)
    return None if entry is None else entry.load()


def load_all(group: str) -> dict[str, Any]:
    """Import and return everything behind a door, by name; an entry that cannot be imported is a warning."""
    found = {}
    for name, entry in entries(group).items():
        try:
            found[name] = entry.load()
        except (ImportError, AttributeError) as error:
            logger.log_warning(f"{group} '{name}' of an installed package cannot be imported: {error}")
    return found


def face(module: str, sources: dict[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for ``module``, which imports a name from its source when it is first asked for."""

    def get(name: str) -> Any:
        if name not in sources:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(sources[name]), name)

    return get


def install_extra(extra: str) -> str:
    """Return the command that installs an extra's requirements, by this environment's Python."""
    try:
        lines = [line.partition(";") for line in requires(DISTRIBUTION) or []]
    except PackageNotFoundError:  # a checkout that is only on Python's path
        lines = []
    wanted = re.compile(rf"""extra == ["']{extra}["']""")
    found = [requirement.strip() for requirement, _, marker in lines if wanted.search(marker)]
    return install_command(*(found or [f"{DISTRIBUTION}[{extra}]"]))


def install_command(*requirements: str) -> str:
    """Return the command that installs packages into this environment."""
    python = shlex.quote(sys.executable)
    has_pip = importlib.util.find_spec("pip") is not None
    tool = f"{python} -m pip install" if has_pip else f"uv pip install --python {python}"
    return " ".join([tool, *map(shlex.quote, requirements)])


def shipped_path(path: Path) -> Path:
    """Return a path that begins with ``configs`` and is not there as the shipped one; every other as it is."""
    return ROOT / path if path.parts[:1] == ("configs",) and not path.exists() and (ROOT / path).exists() else path
