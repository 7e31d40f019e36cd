"""``embodichain doctor --algo``: the self-test on the command line."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from embodichain.tools.doctor.report import format_result, format_totals
from embodichain.tools.doctor.run import run_checks
from embodichain.utils.module_utils import add_allow_import, add_import, import_named_modules

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--algo", metavar="NAME", help="examine this algorithm, by its registered name")
    add_import(parser)
    add_allow_import(parser, "--import")
    parser.add_argument("--json", action="store_true", help="print one JSON list of results instead of text")


def run(args: argparse.Namespace) -> int:
    """Examine the algorithm and print what was found; return 0 if nothing failed, else 1.

    Raises:
        ConfigError: a module is not allowed or not there, or there is no algorithm of the name.
    """
    import_named_modules(args)
    results = []
    for result in run_checks(args.algo):
        results.append(result)
        if not args.json:
            print(format_result(result), flush=True)
    print(json.dumps([asdict(result) for result in results], indent=2) if args.json else format_totals(results))
    return int(any(result.status == "failed" for result in results))
