"""``embodichain eval``."""

import argparse

from embodichain.agents.rl.config.arguments import add_allow_import, add_overrides, allowed_imports
from embodichain.commands import arguments
from embodichain.tools.evaluate import evaluate_run, format_evaluation

EXAMPLES = (
    "latest",
    "outputs/push_cube_ppo_20260101_120000/best --episodes 1000",
    "latest max_episode_steps=200 --json > evaluation.json",
    "latest --stochastic --episodes 50 --record outputs/shown",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    arguments.add_run(parser)
    add_overrides(parser)
    parser.add_argument(
        "--episodes", type=arguments.number_of_episodes(), default=200, metavar="E", help="default: %(default)s"
    )
    parser.add_argument(
        "--envs", type=arguments.whole_number(), default=50, metavar="N", help="side by side (default: 50)"
    )
    parser.add_argument(
        "--seed",
        type=arguments.whole_number(0),
        default=0,
        help="of the set of episodes, independent of the runs' training seeds (default: 0)",
    )
    parser.add_argument("--stochastic", action="store_true", help="explore as in training, not the most likely actions")
    parser.add_argument(
        "--record",
        type=arguments.output_folder,
        metavar="FOLDER",
        help="write the episodes into a LeRobot dataset, which bc and SAC learn from; it must not exist",
    )
    arguments.add_json(parser)
    arguments.add_device(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Evaluate and print; return 0."""
    settings = (args.episodes, args.envs, args.seed, args.device, allowed_imports(args), args.overrides)
    result = evaluate_run(args.target, *settings, deterministic=not args.stochastic, record=args.record)
    arguments.print_result(args, result, format_evaluation)
    if args.record is not None and not args.json:
        print(f"dataset    {args.record}: {args.episodes} episodes")
    return 0
