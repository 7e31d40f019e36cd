"""``embodichain export``."""

from __future__ import annotations

import argparse
import sys

from embodichain.commands.arguments import add_run, output_file, whole_number
from embodichain.tools.export.formats import FORMATS
from embodichain.tools.export.parity import ParityError
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
        help="by which it is compared with the policy (default: %(default)s)",
    )
    parser.add_argument("--envs", type=whole_number(), default=8, metavar="N", help="that they are recorded in")
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Export; return 0, or 1 where the file does not do what the policy does: then it is not left behind."""
    allowed = allowed_imports(args)
    try:
        export = export_run(args.target, args.format, args.out, args.observations, args.envs, allowed)
    except ParityError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(format_export(export))
    return 0
