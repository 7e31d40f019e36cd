"""``embodichain replay``."""

from __future__ import annotations

import argparse
from pathlib import Path

from embodichain.agents.rl.nan_guard.bundle import load_bundle
from embodichain.commands.arguments import add_device, add_json
from embodichain.tools.replay.report import format_divergence, format_headline, format_report, to_json
from embodichain.tools.replay.run import allow_modules, describe_divergence, replay_update
from embodichain.utils.device import resolve_device
from embodichain.utils.module_utils import add_allow_import, allowed_imports

EXAMPLES = ("outputs/cart_pole_ppo_20260101_120000/bundles/update_step_131072.pt",)
EXIT_CODES = "exit codes: 0 it failed as in the run, 1 it did not, 2 the bundle cannot be used here"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="a file of a run's folder 'bundles'")
    add_device(parser)
    add_allow_import(parser, "the run's config")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Repeat the bundle's update and print the report; return 0 if it failed as in the run, else 1.

    A divergence, and an update from a replay buffer, cannot be repeated: what the bundle has is printed, and 0
    returned.
    """
    device = resolve_device(args.device, "--device")
    bundle = load_bundle(args.bundle, device)
    if not args.json:
        print(format_headline(bundle))
    if bundle["kind"] == "divergence":
        record = describe_divergence(bundle)
        print(to_json(record) if args.json else format_divergence(record))
        return 0
    allow_modules(bundle, allowed_imports(args))
    report = replay_update(bundle, device)
    print(to_json(report.facts()) if args.json else format_report(report))
    return int(report.is_repeated and not report.is_reproduced)
