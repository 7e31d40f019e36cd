"""Subcommands of ``embodichain``."""

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

EXIT_CODES = "exit codes: 0 done, 1 failed, 2 wrong usage or config"


class Command(NamedTuple):
    """A subcommand, here or behind the door ``embodichain.commands``.

    Attributes:
        module: module with ``EXAMPLES``, ``add_arguments(parser)`` and ``run(args) -> exit code``, or a
            :class:`Subcommand` in it as ``module:name``; imported when the command is given, since most need torch,
            which takes seconds.
        help: purpose in one line.
    """

    module: str
    help: str

    def load(self) -> Any:
        """Return the module, or the subcommand in it."""
        module, _, name = self.module.partition(":")
        found = import_module(module)
        return getattr(found, name) if name else found


class Subcommand(NamedTuple):
    """One of several subcommands in a module, with the attributes of a module that is one subcommand."""

    EXAMPLES: tuple[str, ...]
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    EXIT_CODES: str = EXIT_CODES
