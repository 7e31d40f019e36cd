"""``embodichain validate``: checks a training or an environment config, and tries it with a few environments."""

import argparse
from collections.abc import Sequence, Sized
from contextlib import closing
from pathlib import Path
from typing import cast

import torch

from embodichain.agents.rl.build import build_env_policy, check_built_policy
from embodichain.agents.rl.config import arguments
from embodichain.agents.rl.config.trainer_cfg import is_env_config
from embodichain.agents.rl.run_config import RunConfig, find_train_config, load_run_config, scene_cfg
from embodichain.agents.rl.trainer.viewer import check_viewer_is_installed
from embodichain.agents.rl.vec_env import mirror_map_of
from embodichain.commands.arguments import CONFIG_HELP
from embodichain.commands.robot_files import format_changes
from embodichain.lab.gym.config.env_config import config_to_cfg, converted
from embodichain.lab.gym.env_sources import TaskCfg, find_source
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.gym.registry import get_env_spec
from embodichain.lab.sim.rendering.renderer import RenderingUnavailableError
from embodichain.utils import ConfigError, placed, raise_problems, replace
from embodichain.utils.utility import load_config_file

EXAMPLES = (
    "train_config.json trainer.num_envs=256",
    "gym_config.json",
    "my_task/env.json --import my_task --allow-import my_task",
)
EXIT_CODES = "exit codes: 0 the config is right, 2 it is not, 1 code that it names raised an error"

_NUM_ENVS = 13  # that are tried: [N] is to look unlike another size


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("config", type=Path, metavar="CONFIG", help=f"{CONFIG_HELP}; or an environment config's file")
    arguments.add_overrides(parser)
    arguments.add_import(parser)
    arguments.add_allow_import(parser)


def run(args: argparse.Namespace) -> int:
    """Check the config; return 0."""
    arguments.import_named_modules(args)
    config = read_config(args.config, args.overrides, arguments.allowed_imports(args))
    if isinstance(config, RunConfig) and config.trainer.viewer:
        check_viewer_is_installed()
    tried, changes = try_config(config)
    print("\n".join([f"{args.config}: valid. {format_config(config)}; {tried}", *format_changes(changes)]))
    return 0


def read_config(
    path: Path, overrides: Sequence[str], allowed_imports: Sequence[str], device: str | None = None
) -> RunConfig | tuple[str, TaskCfg]:
    """Read a training config, or an environment config as the task's id and the typed config.

    Args:
        overrides: ``trainer.num_envs=256``, ``env.rewards.reach.weight=2`` and the like.
        allowed_imports: prefixes of the modules that it may name.
        device: replaces a training config's.
    """
    path = find_train_config(path)
    data = load_config_file(path)
    if not is_env_config(data):
        on_device = [] if device is None else [f"trainer.device={device}"]
        return load_run_config(path, [*on_device, *overrides], allowed_imports)
    problems: list[str] = []
    source = find_source(data["id"])
    with placed(f"{path}: "):
        if source is None:
            data = converted(data, "environment")  # before the overrides, which have our paths
        arguments.apply_overrides(data, overrides, problems)
        raise_problems(problems)
        if source is not None:
            parsed = source.parse(data, allowed_imports)
            raise_problems(parsed.problems)
            return data["id"], parsed.cfg
        spec = get_env_spec(data["id"])
        return spec.env_id, config_to_cfg(
            data, env_class=spec.cls, allowed_imports=list(allowed_imports), folder=path.parent
        )


def try_config(config: RunConfig | tuple[str, TaskCfg]) -> tuple[str, dict[str, list[str]]]:
    """Build a few environments from :func:`read_config`'s result on the CPU, make a step, and build the policy.

    Finds errors that only the compiled scene, or a term's first call, shows; interval events are called once. Another
    library's environment may be a real robot, and a VLA's weights are large: neither is built. Returns what was tried,
    for the user, and the differences between each articulation and its file, by uid.
    """
    env_id, any_cfg = (config.env_id, config.env) if isinstance(config, RunConfig) else config
    cfg = scene_cfg(any_cfg)
    if cfg is None:
        return "not built: it is an environment of another library", {}
    on_cpu = replace(cfg.sim_cfg, sim_device="cpu")
    cfg = replace(cfg.without_records(), num_envs=_NUM_ENVS, group_size=1, sim_cfg=on_cpu)
    try:
        with closing(build_env(env_id, cfg)) as env:
            if isinstance(config, RunConfig) and not hasattr(config.policy, "vla_config"):
                check_built_policy(config, env, build_env_policy(config, env, torch.device("cpu")), torch.device("cpu"))
                if getattr(config.algorithm, "symmetry", None) is not None:
                    mirror_map_of(env)
            env.reset(seed=cfg.seed)
            obs, reward, *_, info = env.step(torch.zeros(_NUM_ENVS, env.single_action_space.shape[0]))
            for kind, values in (
                ("observation's entry", obs.flatten_keys("/")),
                ("reward", info["rewards"] | {"sum of all terms": reward}),
            ):
                for name, value in values.items():
                    if value.isnan().any():
                        raise ConfigError(f"the {kind} '{name}' has NaN after the first step")
            some = env.all_env_ids[:1]
            env.event_manager.rehearse(some)
            env.reset(options={"reset_ids": some})
            changes = env.sim.changes
    except (ConfigError, RenderingUnavailableError) as error:
        if isinstance(error, RenderingUnavailableError) or isinstance(error.__cause__, RenderingUnavailableError):
            return f"not tried, since its images cannot be drawn here: {error}", {}
        raise
    return f"{_NUM_ENVS} environments were built, and made a step", changes


def format_config(config: RunConfig | tuple[str, TaskCfg]) -> str:
    """Return a one-line summary of :func:`read_config`'s result."""
    if not isinstance(config, RunConfig):
        env_id, any_cfg = config
        cfg = scene_cfg(any_cfg)
        if cfg is None:
            return f"{env_id}: {any_cfg.num_envs} environments"
        kinds = {"observation": cfg.observations, "reward": cfg.rewards, "event": cfg.events, "action": cfg.actions}
        counts = ", ".join(f"{len(cast(Sized, terms))} {kind}" for kind, terms in kinds.items())
        return f"{env_id} with terms: {counts}"
    trainer, num_envs = config.trainer, config.env.num_envs
    return (
        f"{config.algorithm_name} with the policy {config.policy.name} on {config.env_id}: {trainer.iterations} "
        f"iterations x {trainer.buffer_size} steps x {num_envs} environments = "
        f"{trainer.iterations * trainer.buffer_size * num_envs:,} environment steps"
    )
