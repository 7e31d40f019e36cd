"""``embodichain export``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from embodichain.commands.arguments import add_run, output_file, output_folder, whole_number
from embodichain.tools.export import lerobot
from embodichain.tools.export.formats import FORMATS
from embodichain.tools.export.run import export_run, format_export
from embodichain.tools.lerobot_env import FORMAT as LEROBOT_ENV
from embodichain.tools.lerobot_env import export_lerobot_env
from embodichain.utils import ConfigError
from embodichain.utils.module_utils import add_allow_import, allowed_imports

EXAMPLES = (
    "latest --format onnx",
    "outputs/push_cube_ppo_20260101_120000/best --format pt2 --out policy.pt2",
    "latest/best --format lerobot",
    "configs/agents/rl/push_colored_cube/train_config.json --format lerobot-env",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run(parser)
    parser.add_argument(
        "--format",
        choices=[*FORMATS, lerobot.NAME, LEROBOT_ENV],
        default="onnx",
        help=f"default: %(default)s; {LEROBOT_ENV}: the task of a run or of a training config, for LeRobot's EnvHub",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help=f"default: export/policy.* in the run's folder; of {lerobot.NAME} and {LEROBOT_ENV} a folder, export/...",
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
    allowed = allowed_imports(args)
    if args.format == LEROBOT_ENV:
        out = None if args.out is None else _path(args.out, output_folder)
        print("\n".join(str(path) for path in export_lerobot_env(args.target, out, allowed)))
        return 0
    if args.format == lerobot.NAME:
        out = None if args.out is None else _path(args.out, output_folder)
        found = lerobot.export_lerobot(args.target, out, args.observations, args.envs, allowed)
    else:
        out = None if args.out is None else _path(args.out, output_file)
        found = export_run(args.target, args.format, out, args.observations, args.envs, allowed)
    print(format_export(found))
    return 0


def _path(text: str, check: Callable[[str], Path]) -> Path:
    """Return the path that ``--out`` names, of the kind that the format needs."""
    try:
        return check(text)
    except argparse.ArgumentTypeError as error:
        raise ConfigError(f"argument --out: {error}") from error
