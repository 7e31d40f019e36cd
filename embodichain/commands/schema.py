"""``embodichain schema``."""

import argparse

from embodichain.commands.arguments import output_file
from embodichain.schema import SCHEMAS, schema_text

EXAMPLES = ("--kind train", "--kind env --out env.schema.json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--kind", choices=list(SCHEMAS), default="train", help="which file (default: %(default)s)")
    parser.add_argument("--out", type=output_file, metavar="FILE", help="where to write it (default: the terminal)")


def run(args: argparse.Namespace) -> int:
    """Print or write the schema; return 0."""
    text = schema_text(args.kind)
    if args.out is None:
        print(text, end="")
        return 0
    args.out.write_text(text, encoding="utf-8")
    return 0
