"""Compares two runs side by side: configs, machine and code, results."""

import argparse
from collections.abc import Sequence
from typing import Any

from embodichain.agents.rl.checkpoint.saved_run import find_run_folder
from embodichain.commands.arguments import RUN_HELP, add_json, format_columns, print_result
from embodichain.tools.run_data import RunData, read_run
from embodichain.utils.utility import leaves_by_path

EXAMPLES = ("outputs/push_cube_20260101_120000 latest", "RUN RUN --json")

Pairs = dict[str, tuple[Any, Any]]
"""Values of both runs by path; None where a run has none."""


def diff_runs(first: RunData, second: RunData) -> dict[str, Pairs]:
    """Return the values of two configs and machines that differ, and all results."""
    parts = {
        "config": (first.config, second.config),
        "machine and code": (first.machine, second.machine),
        "results": (_results(first), _results(second)),
    }
    found: dict[str, Pairs] = {}
    for part, values in parts.items():
        a, b = map(leaves_by_path, values)
        pairs = {path: (a.get(path), b.get(path)) for path in a | b}
        found[part] = {path: pair for path, pair in pairs.items() if part == "results" or pair[0] != pair[1]}
    return found


def _results(run: RunData) -> dict[str, Any]:
    """Return the numbers of a summary; of an unfinished training the last metrics."""
    return {name: value for name, value in (run.summary or run.rows[-1]).items() if not isinstance(value, str)}


def format_diff(parts: dict[str, Pairs], names: tuple[str, str]) -> str:
    """Return the result of ``diff_runs`` for the screen, below the names of the runs."""
    rows: list[Sequence[str]] = [("", *names)]
    for part, pairs in parts.items():
        rows += [("", "", ""), (part if pairs else f"{part}: equal", "", "")]
        rows += [(f"  {path}", *map(_cell, pair)) for path, pair in pairs.items()]
    return format_columns(rows)


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("runs", nargs=2, metavar="RUN", help=RUN_HELP)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the differences; return 0."""
    first, second = (read_run(find_run_folder(run)) for run in args.runs)
    names = (first.folder.name, second.folder.name)
    print_result(args, diff_runs(first, second), lambda parts: format_diff(parts, names))
    return 0
