"""A run's environment and policy, rebuilt from its checkpoint; and ``--record``, a dataset of its episodes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from embodichain.agents.rl.build import build_env_policy, build_task
from embodichain.agents.rl.checkpoint.saved_run import SavedRun
from embodichain.agents.rl.models import Policy, load_policy_state
from embodichain.agents.rl.run_config import RunConfig, load_checkpoint_config, scene_env, with_scene
from embodichain.agents.rl.vec_env import TaskEnv
from embodichain.lab.gym.env_sources import TaskCfg
from embodichain.lab.gym.envs.managers import datasets
from embodichain.lab.gym.envs.managers.cfg import DatasetCfg
from embodichain.utils import ConfigError, replace
from embodichain.utils.device import resolve_device


@dataclass(frozen=True)
class OpenRun:
    """A run's config, evaluation environment without recording, and policy in evaluation mode."""

    config: RunConfig
    env: TaskEnv
    policy: Policy
    device: torch.device


def evaluated(overrides: Sequence[str], num_envs: int, device: str) -> list[str]:
    """Return the overrides by which a training config is evaluated, in addition to the user's."""
    settings = {"trainer.device": device, "trainer.enable_eval": "true", "trainer.num_eval_envs": str(num_envs)}
    for override in overrides:
        if (key := override.partition("=")[0]) in settings:
            raise ConfigError(f"override '{override}': {key} is decided here by the command's own options")
    return [*(f"{key}={value}" for key, value in settings.items()), *overrides]


@contextmanager
def open_run(
    run: SavedRun,
    num_envs: int,
    device: str = "cpu",
    allowed_imports: Sequence[str] = (),
    overrides: Sequence[str] = (),
    change: Callable[[TaskCfg], TaskCfg] = lambda cfg: cfg,
) -> Iterator[OpenRun]:
    """Build a run's evaluation environment and policy; the environment is closed at the block's end.

    Args:
        allowed_imports: prefixes of modules that the run's config may name.
        overrides: overrides of the run's config: ``trainer.seed=3`` and the like.
        change: function from the run's config to the environment's.
    """
    settings = evaluated(overrides, num_envs, device)
    config = load_checkpoint_config(run.content["config"], settings, allowed_imports)
    assert config.eval_env is not None
    torch_device = resolve_device(device)
    env = build_task(config.env_id, change(config.eval_env.without_records()))
    try:
        policy = build_env_policy(config, env, torch_device)
        load_policy_state(policy, run.content["policy"], str(run.checkpoint))
        policy.eval()
        yield OpenRun(config, env, policy, torch_device)
    finally:
        env.close()


def check_is_free(folder: Path) -> None:
    """Raise a ConfigError if the folder of ``--record`` exists."""
    if folder.exists():
        raise ConfigError(f"--record {folder}: is there already: name another folder, or remove it")


def recorded(cfg: TaskCfg, folder: Path | None) -> TaskCfg:
    """Return an environment's config with a recorder of a LeRobot dataset; the same without a folder.

    The dataset has ``observation.environment_state``. See :func:`write_into`.
    """
    if folder is None:
        return cfg
    params = {"save_path": folder.name, "environment_state": True}
    return replace(with_scene(cfg, "--record"), dataset={"episodes": DatasetCfg(datasets.LeRobotRecorder, params)})


def write_into(env: TaskEnv, folder: Path | None) -> None:
    """Let an environment that is built from a config of :func:`recorded` write into the folder."""
    if folder is not None and scene_env(env) is not None:
        env.write_into(folder.parent)
