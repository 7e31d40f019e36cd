"""Subcommands of ``embodichain``."""

from importlib import import_module
from typing import Any, NamedTuple


class Command(NamedTuple):
    """A subcommand, here or behind the door ``embodichain.commands``.

    Attributes:
        module: module with ``EXAMPLES``, ``add_arguments(parser)`` and ``run(args) -> exit code``, or an object with
            these as ``module:object``; imported when the command is given, since most need torch, which takes seconds.
        help: purpose in one line.
    """

    module: str
    help: str

    def load(self) -> Any:
        """Return the module, or the object in it."""
        module, _, name = self.module.partition(":")
        found = import_module(module)
        return getattr(found, name) if name else found
