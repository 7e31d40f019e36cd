"""``embodichain compare``."""

from __future__ import annotations

import argparse

from embodichain.commands.arguments import add_json, output_file_with, print_result, writing
from embodichain.ext.report.compare import compare_runs, format_comparison, make_page

EXAMPLES = (
    "outputs/cart_pole_*",
    "ppo=outputs/a_1,outputs/a_2 grpo=outputs/b_1,outputs/b_2 --out comparison.html",
    "outputs/push_cube_* --metric eval/avg_length --json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="runs' folders, or 'latest'; those whose configs differ in the seed alone are a group. Or groups: "
        "NAME=RUN,RUN,...",
    )
    parser.add_argument(
        "--metric",
        default="eval/success_rate",
        help="a metric of metrics.jsonl, of which the last value counts (default: %(default)s)",
    )
    page = output_file_with((".html", ".htm"))
    parser.add_argument("--out", type=page, metavar="FILE", help="write a page with a plot and the tables")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Compare and print; return 0."""
    result, groups = compare_runs(args.runs, args.metric)
    if args.out is not None:
        with writing(args.out):
            args.out.write_text(make_page(result, groups), encoding="utf-8")
    print_result(args, result, format_comparison)
    return 0
