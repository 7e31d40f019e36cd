"""The commands that install missing packages into this environment."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from importlib.metadata import PackageNotFoundError, requires

DISTRIBUTION = "embodichain-mujoco"


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
