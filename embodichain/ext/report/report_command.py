"""``embodichain report``."""

from __future__ import annotations

import argparse

from embodichain.agents.rl.checkpoint.saved_run import find_run_folder
from embodichain.commands.arguments import add_run
from embodichain.ext.report.page import write_report
from embodichain.utils import ConfigError

EXAMPLES = ("latest", "outputs/push_cube_ppo_20260101_120000")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run(parser)


def run(args: argparse.Namespace) -> int:
    """Write the report; return 0."""
    folder = find_run_folder(args.target)
    try:
        print(write_report(folder))
    except OSError as error:
        raise ConfigError(f"{folder}: the report cannot be written: {error}") from error
    return 0
