"""Commands that train: ``embodichain train``, ``resume``, ``bc`` and ``demo``."""

import argparse
from pathlib import Path
from typing import Any

from embodichain.agents.rl.config.arguments import add_options
from embodichain.agents.rl.config.named import names_config
from embodichain.agents.rl.run_folder import print_summary
from embodichain.agents.rl.train import train_as_command
from embodichain.commands import Subcommand
from embodichain.commands.arguments import CONFIG_HELP, RUN_HELP
from embodichain.utils import logger

_ONE_EVALUATION = "trainer.eval_freq=1000 it"  # at the end, with the video
_EXIT_CODES = "exit codes: 0 done, 1 failed, 2 wrong usage or config, 129, 130 or 143 interrupted (resume continues)"
_NEXT = """
next
  embodichain train push_cube      a UR10 pushes a cube to its goal, about a minute
  embodichain list envs            all tasks, and how to train each
  embodichain new task my_task     a working task of your own to start from"""


def _add_train(parser: argparse.ArgumentParser, config_help: str = CONFIG_HELP) -> None:
    parser.add_argument("config", metavar="CONFIG", help=config_help)
    add_options(parser)
    parser.set_defaults(resume=None)


def _add_resume(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("resume", metavar="RUN", help=RUN_HELP)
    add_options(parser)
    parser.set_defaults(config=None)


def _add_bc(parser: argparse.ArgumentParser) -> None:
    _add_train(parser, "training config with algorithm.name 'bc': a file (JSON or YAML), or a shipped task's name")


def _run_bc(args: argparse.Namespace) -> int:
    if names_config(args.config) and not (Path(args.config).is_file() or "/" in args.config):  # a task's name
        args.config = f"{args.config}/bc"
    return train_as_command(args)


def _add_demo(parser: argparse.ArgumentParser) -> None:
    add_options(parser)
    parser.set_defaults(config="cart_pole", resume=None)


def _run_demo(args: argparse.Namespace) -> int:
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


TRAIN = Subcommand(
    (
        "push_cube",
        "reach/sac trainer.seed=3",
        "train_config.json trainer.num_envs=256 algorithm.cfg.gamma=0.98",
    ),
    _add_train,
    train_as_command,
    _EXIT_CODES,
)
RESUME = Subcommand(
    ("latest", "outputs/cart_pole_quickstart_20260101_120000 trainer.iterations=200"),
    _add_resume,
    train_as_command,
    _EXIT_CODES,
)
BC = Subcommand(
    ("push_colored_cube", "pick_cube trainer.iterations=60 algorithm.cfg.demonstrations=outputs/demonstrations"),
    _add_bc,
    _run_bc,
    _EXIT_CODES,
)
DEMO = Subcommand(("", "trainer.seed=3"), _add_demo, _run_demo, _EXIT_CODES)
