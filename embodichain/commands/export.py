"""``embodichain export``."""

from __future__ import annotations

import argparse

from embodichain.commands.arguments import add_run, output_file, whole_number
from embodichain.tools.export.formats import FORMATS
from embodichain.tools.export.run import export_run, format_export
from embodichain.utils.module_utils import add_allow_import, allowed_imports

EXAMPLES = ("latest --format onnx", "outputs/push_cube_ppo_20260101_120000/best --format pt2 --out policy.pt2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_run(parser)
    parser.add_argument("--format", choices=list(FORMATS), default="onnx", help="default: %(default)s")
    parser.add_argument("--out", type=output_file, metavar="FILE", help="default: export/policy.* in the run's folder")
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
    print(format_export(export_run(args.target, args.format, args.out, args.observations, args.envs, allowed)))
    return 0
