"""Ends a command where EmbodiChain's own package lies in this folder, too: the two overwrite each other's files.

The package imports this before anything else, which is as much as it can do: if the other one was installed later, its
``__init__.py`` is there instead. This imports nothing of the package: its other files may be theirs.
"""

from importlib.metadata import distributions
from pathlib import Path


def find_conflict(folder: Path) -> str | None:
    """Return the message for a package folder into which the distribution ``embodichain`` is installed, else None."""
    for other in distributions(name="embodichain"):
        if Path(str(other.locate_file("embodichain"))).resolve() == folder:
            return (
                f"error: 'embodichain' {other.version} and 'embodichain-mujoco' are both installed into {folder} and "
                "have overwritten each other's files: remove both (pip uninstall embodichain embodichain-mujoco), then "
                "install one"
            )
    return None


if (_PROBLEM := find_conflict(Path(__file__).resolve().parent)) is not None:
    raise SystemExit(_PROBLEM)
