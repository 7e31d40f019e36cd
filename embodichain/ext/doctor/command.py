"""``embodichain doctor``: this machine, or with ``--algo`` an algorithm."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from embodichain.commands.arguments import add_json, print_result
from embodichain.ext.doctor.machine import examine_machine, format_machine
from embodichain.ext.doctor.run import format_result, format_totals, run_checks
from embodichain.utils.files import json_text
from embodichain.utils.module_utils import add_allow_import, add_import, import_named_modules

EXAMPLES = ("", "--json", "--algo ppo", "--algo a2c --import my_lab.a2c --allow-import my_lab")
EXIT_CODES = "exit codes: 0 done, 1 the algorithm failed a check, 2 wrong usage"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--algo", metavar="NAME", help="check this algorithm, by its registered name")
    add_import(parser)
    add_allow_import(parser, "--import")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Check and print; return 0, or 1 if an algorithm failed a check."""
    if args.algo is None:
        if args.modules:
            args.command.error("--import: needs --algo")
        print_result(args, examine_machine(), format_machine)
        return 0
    import_named_modules(args)
    results = []
    for result in run_checks(args.algo):
        results.append(result)
        if not args.json:
            print(format_result(result), flush=True)
    print(json_text([asdict(result) for result in results], indent=2) if args.json else format_totals(results))
    return int(any(result.status == "failed" for result in results))
