"""The command ``embodichain``.

embodichain train configs/agents/rl/basic/cart_pole/train_config_quickstart.json trainer.seed=3
embodichain eval latest --episodes 200
embodichain schema --kind env --out env.schema.json
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from embodichain import __version__
from embodichain.commands import (
    bc,
    compare,
    completion,
    doctor,
    evaluate,
    export,
    listing,
    new,
    play,
    replay,
    report,
    resume,
    rewards,
    schema,
    train,
    validate,
    view,
)
from embodichain.lab.sim.sensors import RenderingUnavailableError
from embodichain.utils import ConfigError

__all__ = ["COMMANDS", "main", "make_parser"]

COMMANDS: dict[str, ModuleType] = {
    "train": train,
    "resume": resume,
    "bc": bc,
    "eval": evaluate,
    "play": play,
    "export": export,
    "report": report,
    "compare": compare,
    "rewards": rewards,
    "new": new,
    "list": listing,
    "validate": validate,
    "view": view,
    "schema": schema,
    "doctor": doctor,
    "replay": replay,
    "completion": completion,
}
"""By name: modules with ``HELP``, ``EXAMPLES``, ``add_arguments`` and ``run``."""

_EXIT_CODES = "exit codes: 0 done, 1 failed, 2 wrong usage or config"


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="embodichain",
        description="Train robots by reinforcement learning on MuJoCo, and look at what came of it.",
        epilog=f"'embodichain COMMAND --help' shows a command's arguments and examples.\n{_EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"embodichain {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for name, module in COMMANDS.items():
        examples = "".join(f"  embodichain {name} {example}\n" for example in module.EXAMPLES)
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=f"examples:\n{examples}\n{getattr(module, 'EXIT_CODES', _EXIT_CODES)}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run, command=command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code: 0 done, 1 failed, 2 wrong usage or config, 130 or 143 interrupted."""
    parser = make_parser()
    parser.set_defaults(parser=parser)
    args, rest = parser.parse_known_args(argv)
    # Subcommands cannot take options between the values of a list: key=value --distributed key=value.
    overrides = [text for text in rest if "=" in text and text[0] != "-"] if hasattr(args, "overrides") else []
    if unknown := [text for text in rest if text not in overrides]:
        args.command.error(f"unrecognized arguments: {' '.join(unknown)}")
    if overrides:
        args.overrides += overrides
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except RenderingUnavailableError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever reads has seen enough, as in `embodichain list terms | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


if __name__ == "__main__":
    sys.exit(main())
