"""``embodichain show``: a resolved config, with the origin of each value."""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from embodichain.agents.rl.checkpoint.saved_run import find_run_folder, names_run
from embodichain.agents.rl.config.arguments import add_allow_import, add_overrides, allowed_imports, split_overrides
from embodichain.agents.rl.run_config import env_config_keys, find_train_config, load_run_config
from embodichain.commands.arguments import CONFIG_HELP, add_json, format_columns, print_result
from embodichain.lab.gym.config.env_config import converted, defaults_of
from embodichain.lab.gym.env_sources import find_source
from embodichain.lab.gym.envs.env_cfg import TOP_FIELDS
from embodichain.lab.gym.registry import get_env_spec
from embodichain.utils.utility import leaves_by_path, load_config_file

EXAMPLES = ("push_cube", "train_config.json trainer.num_envs=256 --json")

_ENV = "gym_config."  # before the paths of the environment config


def resolved_values(config: str, overrides: Sequence[str], allowed: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return each ``value`` of a resolved training config, and where it is ``from``, by path.

    Origins are ``override``, the path of a file, ``task's own`` and ``default``. The environment config's paths begin
    with ``gym_config``, as in a run's ``config.json``.
    """
    path = find_run_folder(config) / "config.json" if names_run(config) else find_train_config(config)
    run = load_run_config(path, overrides, allowed)
    data = converted(load_config_file(path), "training")
    env: Any = data.pop("gym_config", None) or run.trainer.gym_config or data["trainer"]["gym_config"]
    env_path = str(path)
    if isinstance(env, str):
        env, env_path = load_config_file(env), env
    defaults: Mapping[str, Any] = {}
    if find_source(run.env_id) is None:
        env, defaults = converted(env, "environment"), defaults_of(get_env_spec(run.env_id).cls)
    own, of_env = (
        [text.partition("=")[0] for text in texts] for texts in split_overrides(overrides, env_config_keys())
    )
    origins = [
        ("override", {*own, *map(_env_path, of_env)}),
        (env_path, set(map(_env_path, leaves_by_path(env)))),
        (str(path), set(leaves_by_path(data))),
        ("task's own", set(map(_env_path, leaves_by_path(defaults)))),
    ]
    return {
        leaf: {"value": value, "from": next((name for name, paths in origins if _is_among(leaf, paths)), "default")}
        for leaf, value in leaves_by_path(run.resolved).items()
    }


def _env_path(path: str) -> str:
    """Return an environment config's path in a run's config, where fields that may be at the top are there."""
    is_top = path.removeprefix("env.") in TOP_FIELDS
    return _ENV + (path.removeprefix("env.") if is_top else path)


def _is_among(leaf: str, paths: set[str]) -> bool:
    """Return whether a path, one above it, or one below it is among others."""
    return any(f"{leaf}.".startswith(f"{path}.") or path.startswith(f"{leaf}.") for path in paths)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("config", metavar="CONFIG", help=f"{CONFIG_HELP}; or a run")
    add_overrides(parser)
    add_json(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Print the values; return 0."""
    print_result(args, resolved_values(args.config, args.overrides, allowed_imports(args)), format_values)
    return 0


def format_values(values: dict[str, dict[str, Any]]) -> str:
    """Return a line for each value: path, value, origin."""
    rows = [
        (path, json.dumps(row["value"], ensure_ascii=False), Path(row["from"]).name) for path, row in values.items()
    ]
    return format_columns(rows)
