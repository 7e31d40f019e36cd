"""Subcommands of ``embodichain``, a module each."""

from importlib import import_module
from types import ModuleType
from typing import NamedTuple


class Command(NamedTuple):
    """A subcommand, here or behind the door ``embodichain.commands``.

    Attributes:
        module: module with ``EXAMPLES``, ``add_arguments(parser)`` and ``run(args) -> exit code``; imported when the
            command is given, since most need torch, which takes seconds.
        help: purpose in one line.
    """

    module: str
    help: str

    def load(self) -> ModuleType:
        """Return the module."""
        return import_module(self.module)
