"""The command ``embodichain``.

embodichain train configs/agents/rl/basic/cart_pole/train_config_quickstart.json trainer.seed=3
embodichain eval latest --episodes 200
embodichain schema --kind env --out env.schema.json
"""

import argparse
import gc
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from embodichain import __version__
from embodichain.commands import EXIT_CODES, Command
from embodichain.utils import doors, unknown_name
from embodichain.utils.border import OPTION, OPTION_HELP, run_command

COMMANDS: dict[str, Command] = {
    "demo": Command(
        "embodichain.commands.train:DEMO",
        "Train a cart to balance its pole, in half a minute, and name the video and the report.",
    ),
    "train": Command("embodichain.commands.train:TRAIN", "Train a policy as a config file says."),
    "resume": Command(
        "embodichain.commands.train:RESUME", "Continue a training from its latest checkpoint, also for more iterations."
    ),
    "bc": Command(
        "embodichain.commands.train:BC",
        "Behaviour cloning: let a policy imitate demonstrations, of a dataset or a scripted expert.",
    ),
    "eval": Command("embodichain.commands.evaluate", "Evaluate a saved policy on a fixed set of episodes."),
    "play": Command(
        "embodichain.commands.play",
        "Play episodes with a saved policy, or with none: a video of them, or live in the browser.",
    ),
    "new": Command(
        "embodichain.commands.new",
        "Write a new task from templates: a package with a class, configs and tests; the template's robot learns it.",
    ),
    "trust": Command(
        "embodichain.commands.trust",
        "Let configs name the modules in a folder, once instead of --allow-import with each command; or list them.",
    ),
    "list": Command(
        "embodichain.commands.listing", "List the tasks, algorithms, policies or terms that a config may name."
    ),
    "validate": Command(
        "embodichain.commands.validate",
        "Check a training config or an environment config, and name every mistake in it; nothing is trained.",
    ),
    "show": Command("embodichain.commands.show", "Print a resolved config, with the origin of each value."),
    "view": Command(
        "embodichain.commands.view", "Render or show a config's scene, and list the policy's observations and actions."
    ),
    "schema": Command(
        "embodichain.schema", "Write the JSON Schema of a config file, for completion and checks in editors."
    ),
    "completion": Command(
        "embodichain.commands.completion", "Print a script for shell completion of commands, options and files."
    ),
    **doors.load_all(doors.COMMANDS),
}
"""Commands by name, in the order of the help; extensions' and other packages' come last."""

_THEIR_TRAIN = "train-rl"
"""EmbodiChain's name of ``python -m embodichain.agents.rl.train``."""


def make_parser(loaded: Collection[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """Return the parser of the command line.

    Args:
        loaded: commands with imported modules and declared arguments; the others have help only.
    """
    parser = argparse.ArgumentParser(
        prog="embodichain",
        description="Train robots by reinforcement learning on MuJoCo, and analyse the results.",
        epilog=f"'embodichain COMMAND --help' shows a command's arguments and examples.\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"embodichain {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(
            name, help=command.help, description=command.help, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in loaded:
            module = command.load()
            examples = "".join(f"  embodichain {name} {example}\n" for example in module.EXAMPLES)
            subparser.epilog = f"examples:\n{examples}\n{getattr(module, 'EXIT_CODES', EXIT_CODES)}"
            module.add_arguments(subparser)
            subparser.add_argument(OPTION, action="store_true", help=OPTION_HELP)
            subparser.set_defaults(run=module.run, command=subparser)
    return parser


@contextmanager
def _loading() -> Iterator[None]:
    """Tell a terminal that modules are loaded in the block, for as long as that takes, and collect no garbage there.

    PyTorch and its dependents make most of it. They leave little garbage, and looking for it takes a tenth of the
    time.
    """
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if is_terminal:
        print("loading PyTorch and MuJoCo ...", end="", file=sys.stderr, flush=True)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        if is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code, as :func:`run_command`."""
    words = sys.argv[1:] if argv is None else argv
    return run_command(lambda: _main(words), OPTION in words)


def _main(words: Sequence[str]) -> int:
    if not words:
        make_parser(()).print_help(sys.stderr)
        return 2
    if words[0] == _THEIR_TRAIN:
        return int(import_module("embodichain.agents.rl.train").main(words[1:]))
    name = next((word for word in words if not word.startswith("-")), None)
    if name is not None and name not in COMMANDS:
        make_parser(()).error(unknown_name("command", name, COMMANDS))
    with _loading():
        parser = make_parser(tuple(COMMANDS) if name == "completion" else (str(name),))
    parser.set_defaults(parser=parser)
    args, rest = parser.parse_known_args(words)
    # Subcommands cannot take options between the values of a list: key=value --distributed key=value.
    takes_overrides = hasattr(args, "overrides")
    overrides = [text for text in rest if "=" in text and text[0] != "-"] if takes_overrides else []
    if unknown := [text for text in rest if text not in overrides]:
        hint = "; values of the config are given as key=value, such as trainer.num_envs=256" if takes_overrides else ""
        args.command.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    if overrides:
        args.overrides = [*args.overrides, *overrides]
    code: int = args.run(args)
    return code


if __name__ == "__main__":
    sys.exit(main())
