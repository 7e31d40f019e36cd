"""``embodichain validate``."""

import argparse
from pathlib import Path

from embodichain.agents.rl.config.arguments import add_allow_import, add_import, allowed_imports, import_named_modules
from embodichain.agents.rl.run_config import RunConfig
from embodichain.agents.rl.trainer.viewer import check_viewer_is_installed
from embodichain.commands.arguments import CONFIG_HELP, add_overrides
from embodichain.tools.validate import format_config, read_config, try_config

EXAMPLES = (
    "train_config.json trainer.num_envs=256",
    "gym_config.json",
    "my_task/env.json --import my_task --allow-import my_task",
)
EXIT_CODES = "exit codes: 0 the config is right, 2 it is not, 1 code that it names raised an error"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("config", type=Path, metavar="CONFIG", help=f"{CONFIG_HELP}; or an environment config's file")
    add_overrides(parser)
    add_import(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Check the config; return 0."""
    import_named_modules(args)
    config = read_config(args.config, args.overrides, allowed_imports(args))
    if isinstance(config, RunConfig) and config.trainer.viewer:
        check_viewer_is_installed()
    tried = try_config(config)
    print(f"{args.config}: valid. {format_config(config)}; {tried}")
    return 0
