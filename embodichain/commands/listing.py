"""``embodichain list``."""

from __future__ import annotations

import argparse

from embodichain.commands.arguments import add_json, print_result
from embodichain.tools.listing import LISTS, format_rows, rows_of
from embodichain.utils.module_utils import add_allow_import, add_import, import_named_modules

EXAMPLES = (
    "envs",
    "terms --json",
    "algos --import my_lab.a2c --allow-import my_lab",
    "terms --import my_task.task --allow-import my_task",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("kind", nargs="?", choices=list(LISTS), help="what to list (default: all)")
    add_import(parser)
    add_json(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Print the list; return 0."""
    import_named_modules(args)
    if args.kind is not None:
        print_result(args, rows_of(args.kind, args.modules), format_rows)
        return 0
    lists = {kind: rows_of(kind, args.modules) for kind in LISTS}
    print_result(args, lists, lambda _: "\n\n".join(f"# {kind}\n\n{format_rows(rows)}" for kind, rows in lists.items()))
    return 0
