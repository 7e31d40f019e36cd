"""The command line of a training."""

import argparse
from collections.abc import Sequence

from embodichain.utils import ConfigError
from embodichain.utils.border import OPTION, OPTION_HELP
from embodichain.utils.device import resolve_device
from embodichain.utils.module_utils import import_allowed_modules, imports_allowed_by_environment


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line: ``config``, ``distributed`` (None where unset), ``overrides`` and the other options."""
    parser = argparse.ArgumentParser(
        prog="python -m embodichain.agents.rl.train",
        description="Train a policy from one config file.",
        epilog="example: %(prog)s --config train_config.json trainer.num_envs=256 algorithm.cfg.gamma=0.98",
    )
    parser.add_argument("--config", metavar="PATH", help="training config, JSON or YAML")
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="continue a run: its folder (with /best from its best checkpoint), a checkpoint of it, 'latest' or "
        "'best'; without --config, by the run's own config",
    )
    add_options(parser)
    parser.add_argument(OPTION, action="store_true", help=OPTION_HELP)
    args = parser.parse_intermixed_args(argv)
    if args.config is None and args.resume is None:
        parser.error("one of --config and --resume is needed")
    return args


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command with a training takes, in addition to its config and the run to resume."""
    parser.add_argument(
        "--distributed",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="several processes (unset: as trainer.distributed says)",
    )
    parser.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="number of processes on this machine; implies --distributed (unset: one for each GPU)",
    )
    add_training_device(parser)
    add_allow_import(parser, "the config (trainer.import_modules, dotted paths)")
    add_writes_and_overrides(parser, "let a save_path of the config lead into this folder, outside the run's own")


def add_training_device(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--device``, which :func:`all_overrides` reads."""
    parser.add_argument(
        "--device", type=device_here, metavar="DEVICE", help="in place of the config's: cpu, cuda:0 or auto"
    )


def device_here(text: str) -> str:
    """Type for ``add_argument``: the value of ``--device``, one that this machine has."""
    try:
        resolve_device(text, "--device")
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("--device: ")) from error
    return text


def all_overrides(args: argparse.Namespace, device_key: str = "trainer.device") -> list[str]:
    """Return the overrides of a command line, that of ``--device`` included; an override of the same key counts."""
    return [*([] if args.device is None else [f"{device_key}={args.device}"]), *args.overrides]


def add_writes_and_overrides(parser: argparse.ArgumentParser, allow_write_help: str) -> None:
    """Add ``--allow-write``, with a help text of the command's, and the overrides ``key=value``."""
    parser.add_argument("--allow-write", action="append", default=[], metavar="FOLDER", help=allow_write_help)
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="values in place of the config's")


def allowed_imports(args: argparse.Namespace) -> list[str]:
    """Return the prefixes that the command line and the environment allow."""
    return [*args.allow_import, *imports_allowed_by_environment()]


def add_allow_import(parser: argparse.ArgumentParser, what: str = "the config") -> None:
    """Declare the option ``--allow-import``, which :func:`allowed_imports` reads; ``what`` names modules."""
    parser.add_argument(
        "--allow-import",
        action="append",
        default=[],
        metavar="PREFIX",
        help=f"let {what} name modules below this one (also: EMBODICHAIN_ALLOW_IMPORT, comma-separated)",
    )


def add_import(parser: argparse.ArgumentParser) -> None:
    """Declare the option ``--import``, which :func:`import_named_modules` reads."""
    parser.add_argument(
        "--import",
        dest="modules",
        action="append",
        default=[],
        metavar="MODULE",
        help="import this module first, so that what it registers is known; it must be allowed",
    )


def import_named_modules(args: argparse.Namespace) -> None:
    """Import the modules that the command line names."""
    import_allowed_modules(args.modules, allowed_imports(args), "--import")
