"""``embodichain completion``."""

import argparse

from embodichain.utils import ConfigError, install_extra

EXAMPLES = ("bash > ~/.local/share/bash-completion/completions/embodichain", "zsh > ~/.zfunc/_embodichain")

SHELLS = ("bash", "zsh", "tcsh")
_FILES = ("CONFIG", "RUN", "FILE", "BUNDLE")  # arguments that are files and folders


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def run(args: argparse.Namespace) -> int:
    """Print the script; return 0."""
    try:
        import shtab  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        hint = install_extra("completion")
        raise ConfigError(f"completion: the package shtab is not installed: {hint}") from error
    (commands,) = (action for action in args.parser._actions if isinstance(action, argparse._SubParsersAction))
    for command in commands.choices.values():
        for action in command._actions:
            if action.metavar in _FILES:
                action.complete = shtab.FILE
            elif action.metavar == "FOLDER":
                action.complete = shtab.DIRECTORY
    print(shtab.complete(args.parser, shell=args.shell))
    return 0
