"""``embodichain demo``."""

import argparse
from pathlib import Path
from typing import Any

from embodichain.agents.rl.config.arguments import add_options
from embodichain.agents.rl.run_folder import print_summary
from embodichain.agents.rl.train import train_as_command
from embodichain.commands.train import EXIT_CODES  # noqa: F401 (the help text reads it)
from embodichain.utils import logger

EXAMPLES = ("", "trainer.seed=3")

_ONE_EVALUATION = "trainer.eval_freq=1000 it"  # at the end, with the video
_NEXT = """
next
  embodichain train push_cube      a UR10 pushes a cube to its goal, about a minute
  embodichain list envs            all tasks, and how to train each
  embodichain new task my_task     a working task of your own to start from"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_options(parser)
    parser.set_defaults(config="cart_pole", resume=None)


def run(args: argparse.Namespace) -> int:
    """Train, and name the results; return the exit code."""
    logger.log_info("training a cart to balance its pole")
    args.overrides = [_ONE_EVALUATION, *args.overrides]
    return train_as_command(args, _show)


def _show(summary: dict[str, Any]) -> None:
    print_summary(summary)
    report = (Path(summary["run_folder"]) / "report.html").absolute().as_uri()
    video = None if summary["video"] is None else Path(summary["video"]).absolute().as_uri()
    seen = "" if video is None else f"\n  {video}"
    print(f"\nto see, in a browser\n  {report}{seen}\n{_NEXT}")
