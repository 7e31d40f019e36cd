"""``embodichain sweep``."""

from __future__ import annotations

import argparse

from embodichain.agents.rl.config.arguments import add_training_device, all_overrides
from embodichain.commands.arguments import CONFIG_HELP, add_json, output_folder, print_result, whole_number
from embodichain.ext.report.sweep import format_sweep, sweep
from embodichain.utils.module_utils import add_allow_import, allowed_imports

EXAMPLES = (
    "train_config.json --param algorithm.cfg.learning_rate=1e-4:3e-3:log --param algorithm.cfg.n_epochs=4,8",
    "train_config.json trainer.iterations=40 --param algorithm.cfg.gamma=0.95:0.99 --seeds 3 --jobs 4",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("config", metavar="CONFIG", help=CONFIG_HELP)
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="values in place of the config's")
    parser.add_argument(
        "--param",
        dest="parameters",
        action="append",
        required=True,
        metavar="PATH=VALUES",
        help="a setting to search: low:high, low:high:log, or a,b,c; can be given several times",
    )
    parser.add_argument(
        "--trials", type=whole_number(), metavar="T", help="default: 20; all combinations where all settings are lists"
    )
    parser.add_argument(
        "--seeds", type=whole_number(), default=1, metavar="S", help="trainings of a trial (default: 1)"
    )
    parser.add_argument("--jobs", type=whole_number(), default=1, metavar="J", help="trials at a time (default: 1)")
    parser.add_argument("--metric", default="eval/success_rate", help="to maximise (default: %(default)s)")
    parser.add_argument(
        "--out",
        type=output_folder,
        metavar="FOLDER",
        help="of the study; an existing study is continued (default: sweeps/<name>)",
    )
    add_training_device(parser)
    add_json(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Search and print; return 0, or 1 if no trial finished."""
    overrides = all_overrides(args)
    counts = {"trials": args.trials, "seeds": args.seeds, "jobs": args.jobs}
    result = sweep(
        args.config, overrides, args.parameters, args.out, allowed_imports(args), metric=args.metric, **counts
    )
    print_result(args, result, lambda found: format_sweep(found, args.config, overrides, args.allow_import))
    return int(result["best"] is None)
