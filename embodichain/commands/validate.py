"""``embodichain validate``."""

from __future__ import annotations

import argparse
from collections.abc import Sized
from pathlib import Path
from typing import cast

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks that configs name)
from embodichain.agents.rl.config.trainer_cfg import is_env_config
from embodichain.agents.rl.run_config import load_run_config
from embodichain.agents.rl.trainer.viewer import check_viewer_is_installed
from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs import EmbodiedEnvCfg
from embodichain.lab.gym.registry import get_env_spec
from embodichain.utils import ConfigError
from embodichain.utils.errors import placed
from embodichain.utils.module_utils import add_allow_import, add_import, allowed_imports, import_named_modules
from embodichain.utils.utility import load_config_file

EXAMPLES = (
    "train_config.json trainer.num_envs=256",
    "gym_config.json",
    "my_task/env.json --import my_task --allow-import my_task",
)
EXIT_CODES = "exit codes: 0 the config is right, 2 it is not"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("config", type=Path, metavar="CONFIG", help="JSON or YAML")
    parser.add_argument(
        "overrides", nargs="*", default=[], metavar="key=value", help="values in place of the training config's"
    )
    add_import(parser)
    add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Check the config; return 0.

    Raises:
        ConfigError: with every mistake, a line each.
    """
    import_named_modules(args)
    if is_env_config(load_config_file(args.config)):
        if args.overrides:
            raise ConfigError(f"{args.overrides[0]}: {args.config} is an environment config, which has no overrides")
        env_id, cfg = read_env_config(args.config, allowed_imports(args))
        kinds = {"observation": cfg.observations, "reward": cfg.rewards, "event": cfg.events, "action": cfg.actions}
        counts = ", ".join(f"{len(cast(Sized, terms))} {kind}" for kind, terms in kinds.items())
        print(f"{args.config}: valid. {env_id} with terms: {counts}")
        return 0
    run_config = load_run_config(args.config, args.overrides, allowed_imports(args))
    trainer = run_config.trainer
    if trainer.viewer:
        check_viewer_is_installed()
    steps = trainer.iterations * trainer.buffer_size * run_config.env.num_envs
    print(
        f"{args.config}: valid. {run_config.algorithm_name} with the policy {run_config.policy.name} on "
        f"{run_config.env_id}: {trainer.iterations} iterations x {trainer.buffer_size} steps x "
        f"{run_config.env.num_envs} environments = "
        f"{steps:,} environment steps"
    )
    return 0


def read_env_config(path: Path, allowed: list[str]) -> tuple[str, EmbodiedEnvCfg]:
    """Return the task's name and the typed config of an environment config's file.

    Args:
        path: of the file.
        allowed: prefixes of the modules that it may name.

    Raises:
        ConfigError: with every mistake, a line each.
    """
    data = load_config_file(path)
    with placed(f"{path}: "):
        spec = get_env_spec(data["id"])
        return spec.env_id, config_to_cfg(data, env_class=spec.cls, allowed_imports=allowed)
