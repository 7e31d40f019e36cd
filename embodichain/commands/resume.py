"""``embodichain resume``."""

import argparse

from embodichain.agents.rl.config.arguments import add_options
from embodichain.agents.rl.train import train_as_command
from embodichain.commands.arguments import RUN_HELP
from embodichain.commands.train import EXIT_CODES  # noqa: F401 (the help text reads it)

EXAMPLES = ("latest", "outputs/cart_pole_quickstart_20260101_120000 trainer.iterations=200")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("resume", metavar="RUN", help=RUN_HELP)
    add_options(parser)
    parser.set_defaults(config=None)


def run(args: argparse.Namespace) -> int:
    """Train; return the exit code."""
    return train_as_command(args)
