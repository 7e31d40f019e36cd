"""The command line of a training: its options, and overrides of config values such as ``trainer.num_envs=256``."""

import argparse
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from embodichain.utils import ConfigError, collected, placed
from embodichain.utils.border import OPTION, OPTION_HELP
from embodichain.utils.device import resolve_device
from embodichain.utils.module_utils import import_allowed_modules, imports_allowed_by_environment
from embodichain.utils.utility import check_plain

_ELEMENT = re.compile(r"\[\d+\]$")
_INLINE = re.compile(r"(trainer\.)?gym_config\.")  # in a training config, and in a run's record


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
    parser.add_argument(
        "--allow-write",
        action="append",
        default=[],
        metavar="FOLDER",
        help="let a save_path of the config lead into this folder, outside the run's own",
    )
    add_overrides(parser)


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


def all_overrides(args: argparse.Namespace) -> list[str]:
    """Return the overrides of a command line, that of ``--device`` included; an override of the same key counts."""
    return [*([] if args.device is None else [f"trainer.device={args.device}"]), *args.overrides]


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments ``key=value``, which ``cli.main`` takes between options, too."""
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


def apply_overrides(data: dict[str, Any], overrides: Sequence[str], problems: list[str]) -> None:
    """Set values of a config's plain data by dotted paths; lines about malformed ones go to ``problems``."""
    for override in overrides:
        with collected(problems):
            keys, value = _parse_override(override)
            *parents, last = keys
            node = data
            for key in parents:
                _check_no_element(node, key, override, is_entered=True)
                node = node.setdefault(key, {})
                if not isinstance(node, dict):
                    raise ConfigError(f"override '{override}': '{key}' is not an object in the config")
            _check_no_element(node, last, override, is_entered=False)
            node[last] = value


def _check_no_element(node: Mapping[str, Any], key: str, override: str, is_entered: bool) -> None:
    """Raise a ConfigError for an element of a list: ``sensor.0``, or ``sensor[0]``, as errors name it."""
    name = _ELEMENT.sub("", key)
    if isinstance(node.get(name), list) and (is_entered or name != key):
        raise ConfigError(f"override '{override}': elements of a list cannot be set: give the whole list, {name}=[...]")


def split_overrides(overrides: Sequence[str], env_keys: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the overrides of the training config, and the environment's, which begin at its own top.

    Args:
        overrides: ``env.rewards.reach.weight=2``; also ``trainer.gym_config.env.rewards.reach.weight=2`` and
            ``gym_config.env.rewards.reach.weight=2``, its path in a run's ``config.json``.
        env_keys: the keys of an environment's config; the training config has none of them.
    """
    if isinstance(overrides, str) or not all(isinstance(override, str) for override in overrides):
        raise ConfigError(f"overrides: must be a list such as ['trainer.num_envs=256'], got {overrides!r}")
    train: list[str] = []
    env: list[str] = []
    for override in overrides:
        place = _INLINE.match(override)
        inner = override[place.end() :] if place else override
        first = re.split(r"[.=\[]", inner, maxsplit=1)[0]
        is_env = place is not None or first in env_keys
        (env if is_env else train).append(inner)
    return train, env


def _parse_override(override: str) -> tuple[list[str], Any]:
    """Return the keys of an override's path, and its value."""
    path, equals, text = override.partition("=")
    keys = path.split(".")
    if not equals or not all(keys):
        raise ConfigError(f"override '{override}': must be of the form trainer.num_envs=256")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    with placed(f"override '{path}': "):
        check_plain(value)
    return keys, value
