"""``embodichain train``."""

import argparse

from embodichain.agents.rl.config.arguments import add_options
from embodichain.agents.rl.train import train_as_command
from embodichain.commands.arguments import CONFIG_HELP

EXAMPLES = (
    "push_cube",
    "reach/sac trainer.seed=3",
    "train_config.json trainer.num_envs=256 algorithm.cfg.gamma=0.98",
)
EXIT_CODES = "exit codes: 0 done, 1 failed, 2 wrong usage or config, 130 or 143 interrupted (resume continues)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("config", metavar="CONFIG", help=CONFIG_HELP)
    add_options(parser)
    parser.set_defaults(resume=None)


def run(args: argparse.Namespace) -> int:
    """Train; return the exit code."""
    return train_as_command(args)
