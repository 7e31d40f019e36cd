"""``embodichain report``."""

from __future__ import annotations

import argparse
from pathlib import Path

from embodichain.agents.rl.checkpoint.saved_run import last_run
from embodichain.tools.report.page import write_report
from embodichain.utils import ConfigError

EXAMPLES = ("latest", "outputs/push_cube_ppo_20260101_120000")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("run_folder", metavar="RUN", help="a run's folder, finished or not, or 'latest'")


def run(args: argparse.Namespace) -> int:
    """Write the report; return 0."""
    folder = last_run() if args.run_folder == "latest" else Path(args.run_folder)
    try:
        print(write_report(folder))
    except OSError as error:
        raise ConfigError(f"{folder}: the report cannot be written: {error}") from error
    return 0
