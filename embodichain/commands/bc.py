"""``embodichain bc``."""

import argparse
from pathlib import Path

from embodichain.agents.rl.config.arguments import add_options
from embodichain.agents.rl.config.named import names_config
from embodichain.agents.rl.train import train_as_command

EXAMPLES = ("push_colored_cube", "pick_cube trainer.iterations=60 algorithm.cfg.demonstrations=outputs/demonstrations")
EXIT_CODES = "exit codes: 0 done, 1 failed, 2 wrong usage or config, 130 or 143 interrupted (resume continues)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "config",
        metavar="CONFIG",
        help="training config with algorithm.name 'bc': a file (JSON or YAML), or a shipped task's name",
    )
    add_options(parser)
    parser.set_defaults(resume=None)


def run(args: argparse.Namespace) -> int:
    """Train; return the exit code."""
    if names_config(args.config) and not Path(args.config).is_file():  # a task's name
        args.config = f"{args.config}/bc"
    return train_as_command(args)
