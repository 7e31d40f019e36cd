"""``embodichain bc``."""

from __future__ import annotations

import argparse
from pathlib import Path

from embodichain.agents.rl.config.arguments import add_training_device, add_writes_and_overrides, all_overrides
from embodichain.tools.cloning.run import clone_from_config, format_cloning, resume_cloning
from embodichain.utils.module_utils import add_allow_import, allowed_imports
from embodichain.utils.printing import discard_unwritten_output, printing_may_fail

EXAMPLES = (
    "push_colored_cube steps=500",
    "--resume outputs/push_colored_cube_bc",
)
EXIT_CODES = "exit codes: 0 done, 1 failed, 2 wrong usage or config, 130 or 143 interrupted (--resume continues)"
_NOT_BOTH = "CONFIG and --resume: a resumed cloning uses its own config; give changes as key=value"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "config",
        nargs="?",
        metavar="CONFIG",
        help="config of the cloning: a file (JSON or YAML), or a shipped task's name such as push_colored_cube",
    )
    parser.add_argument(
        "--resume",
        type=Path,
        metavar="FOLDER",
        help="continue the cloning in this folder with its own config",
    )
    add_training_device(parser)
    add_allow_import(parser, "the training config")
    add_writes_and_overrides(parser, "let out and record of the config lead into this folder, outside outputs")


def run(args: argparse.Namespace) -> int:
    """Run the cloning; return 0. Output that cannot be written is ignored."""
    with printing_may_fail():
        _clone(args)
    discard_unwritten_output()
    return 0


def _clone(args: argparse.Namespace) -> None:
    if args.resume is not None and args.config is not None and "=" in args.config:
        args.overrides, args.config = [args.config, *args.overrides], None
    if (args.config is None) == (args.resume is None):
        args.command.error("one of CONFIG and --resume is needed" if args.config is None else _NOT_BOTH)
    overrides = all_overrides(args, "device")
    if args.resume is None:
        summary = clone_from_config(args.config, overrides, allowed_imports(args), args.allow_write)
    else:
        summary = resume_cloning(args.resume, overrides, allowed_imports(args))
    print(format_cloning(summary))
