"""``embodichain export``."""

from __future__ import annotations

import argparse

from embodichain.commands.arguments import add_run, whole_number
from embodichain.utils.doors import entries, load
from embodichain.utils.module_utils import add_allow_import, allowed_imports

DOOR = "embodichain.exports"
"""Format -> function ``(target, out, observations, envs, allowed_imports) -> lines for the screen``."""

EXAMPLES = (
    "latest --format onnx",
    "outputs/push_cube_ppo_20260101_120000/best --format torchscript --out policy.pt",
    "latest/best --format lerobot",
    "configs/agents/rl/push_colored_cube/train_config.json --format lerobot-env",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run(parser)
    parser.add_argument(
        "--format",
        choices=list(entries(DOOR)),
        default="onnx",
        help="default: %(default)s; lerobot-env: the task of a run or of a training config, for LeRobot's EnvHub",
    )
    parser.add_argument(
        "--out", metavar="PATH", help="file, of LeRobot's formats a folder (default: export/... in the run's folder)"
    )
    parser.add_argument(
        "--observations",
        type=whole_number(),
        default=1000,
        metavar="K",
        help="number to compare file and policy on (default: %(default)s)",
    )
    parser.add_argument(
        "--envs",
        type=whole_number(),
        default=8,
        metavar="N",
        help="environments (default: %(default)s)",
    )
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Export; return 0."""
    export = load(DOOR, args.format)
    print("\n".join(export(args.target, args.out, args.observations, args.envs, allowed_imports(args))))
    return 0
