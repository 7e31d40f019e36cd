"""``embodichain rewards``."""

from __future__ import annotations

import argparse

from embodichain.commands.arguments import (
    add_device,
    add_json,
    add_run,
    number_of_episodes,
    parse_pairs,
    print_result,
    whole_number,
)
from embodichain.ext.report.rewards import analyse_reward, format_terms
from embodichain.utils.module_utils import add_allow_import, allowed_imports

EXAMPLES = (
    "latest",
    "latest --weights success=5 reach=0.1",
    "outputs/push_cube_ppo_20260101_120000 --episodes 500 --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run(parser)
    parser.add_argument(
        "--episodes",
        type=number_of_episodes(2),
        default=200,
        metavar="E",
        help="number to play, with exploration; they are saved in the run's folder (default: %(default)s)",
    )
    parser.add_argument("--envs", type=whole_number(), default=50, metavar="N", help="side by side (default: 50)")
    parser.add_argument(
        "--weights",
        nargs="+",
        default=[],
        metavar="term=weight",
        help="compute the reward of the same episodes with these weights",
    )
    add_json(parser)
    add_device(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Print the terms; return 0."""
    weights = parse_pairs(args.weights, "--weights")
    result = analyse_reward(args.target, args.episodes, args.envs, weights, args.device, allowed_imports(args))
    print_result(args, result, lambda found: format_terms(found, bool(weights)))
    return 0
