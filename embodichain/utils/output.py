"""Output folders: a config's paths lead below one folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import Field

from embodichain.utils import logger

FileName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^/\\\x00-\x1f]+$")]
"""Part of a file's name: without slashes."""

SavePath = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f]+$")]
"""A folder that a config names; see :meth:`OutputFolder.place`."""


class OutputFolder:
    """The folder below which all paths of a config are written.

    Attributes:
        root: the folder.
    """

    def __init__(self, root: Path, allowed: Sequence[str | Path] = ()) -> None:
        """Set up without creating a folder.

        Args:
            root: the folder.
            allowed: other folders that the user allows.
        """
        self.root = root
        self._allowed = [Path(folder).resolve() for folder in allowed]
        self._warned: set[str] = set()

    def place(self, name: str) -> Path:
        """Return the folder that a config's ``save_path`` means.

        A relative one is below the root; a leading ``outputs/`` is dropped, since older configs name a place in the
        working directory by it. One that leads out of the root is honoured inside the allowed folders, and elsewhere
        becomes the folder of its last name below the root, with a warning.
        """
        path = PurePosixPath(name)
        parts = path.parts[1:] if path.parts[:1] == ("outputs",) else path.parts
        if not path.is_absolute() and ".." not in parts:
            return self.root.joinpath(*parts)
        resolved = Path(name).resolve()
        if any(resolved.is_relative_to(folder) for folder in self._allowed):
            return resolved
        inside = self.root / path.name if path.name != ".." else self.root
        if name not in self._warned:
            self._warned.add(name)
            logger.log_warning(
                f"save_path '{name}' leads out of the run's folder: {inside} is used instead. To have it there, allow "
                f"that folder on the command line: --allow-write {resolved}"
            )
        return inside
