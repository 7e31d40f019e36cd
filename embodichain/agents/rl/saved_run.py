"""Runs that are on the disk: finding them, and building their environment and policy again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from embodichain.agents.rl.checkpoint.content import check_content, loading
from embodichain.agents.rl.checkpoint.file import load_checkpoint
from embodichain.agents.rl.checkpoint.folder import CheckpointFolder
from embodichain.agents.rl.checkpoint.resume import last_run
from embodichain.agents.rl.checkpoint.run_access import check_links
from embodichain.agents.rl.models import Policy, build_policy, load_policy_state
from embodichain.agents.rl.run_config import RunConfig, load_checkpoint_config
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers.record import record_camera_data, record_trajectory
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from embodichain.utils.device import resolve_device

__all__ = ["OpenRun", "SavedRun", "find_run", "open_run", "without_records"]

_WRITTEN = ("export", "rewards", "videos")  # what commands write beside a checkpoint that is not in a run's folder


@dataclass(frozen=True)
class SavedRun:
    """A run's folder and one of its checkpoints.

    Attributes:
        folder: the run's.
        checkpoint: path of the checkpoint.
        content: what is in it.
    """

    folder: Path
    checkpoint: Path
    content: dict[str, Any]

    @property
    def exp_name(self) -> str:
        """Name of the experiment."""
        name: str = self.content["config"]["trainer"]["exp_name"]
        return name


@dataclass(frozen=True)
class OpenRun:
    """A run's environment and policy, as they were saved.

    Attributes:
        config: the run's.
        env: for evaluation; it records nothing.
        policy: with the checkpoint's parameters, in evaluation mode.
        device: of the policy.
    """

    config: RunConfig
    env: EmbodiedEnv
    policy: Policy
    device: torch.device


def find_run(target: str) -> SavedRun:
    """Find a run and a checkpoint of it.

    Args:
        target: a run's folder, for its latest checkpoint; ``<folder>/best``, for the best one; a checkpoint's file; or
            ``latest`` or ``best``, of the run in ``outputs`` that saved last.

    Raises:
        ConfigError: there is none, it cannot be read, or its folder has links that lead out of it.
    """
    path = Path(target)
    is_best = path.name == "best" and not path.exists()
    if target in ("latest", "best") and not path.exists():
        path = last_run()
    elif is_best:
        path = path.parent
    if (path / "checkpoints").is_dir():
        check_links(path)
        folder = CheckpointFolder(path / "checkpoints", "")
        return _whole(path, *(folder.load_best() if is_best else folder.load_latest()))
    if path.is_file() and path.suffix == ".pt":
        is_in_run = path.parent.name == "checkpoints"
        folder_of_file = path.parent.parent if is_in_run else path.parent
        check_links(folder_of_file, None if is_in_run else _WRITTEN)
        return _whole(folder_of_file, path, load_checkpoint(path))
    raise ConfigError(
        f"{target}: no such run: must be a run's folder, that folder with /best, a checkpoint's file, or 'latest' or "
        "'best' of the run in ./outputs that saved last"
    )


def _whole(folder: Path, checkpoint: Path, content: dict[str, Any]) -> SavedRun:
    check_content(content, checkpoint)
    return SavedRun(folder, checkpoint, content)


@contextmanager
def open_run(
    run: SavedRun,
    num_envs: int,
    device: str = "cpu",
    allowed_imports: Sequence[str] = (),
    overrides: Sequence[str] = (),
) -> Iterator[OpenRun]:
    """Build a run's evaluation environment and its policy; the environment is closed at the end.

    Args:
        run: the run.
        num_envs: environments.
        device: of the policy.
        allowed_imports: prefixes of modules that the run's config may name.
        overrides: of the run's config: ``trainer.seed=3`` and the like.

    Raises:
        ConfigError: the config or what it names cannot be used here, or the checkpoint is of another policy.
    """
    settings = [f"trainer.device={device}", "trainer.enable_eval=true", f"trainer.num_eval_envs={num_envs}"]
    config = load_checkpoint_config(run.content["config"], [*settings, *overrides], allowed_imports)
    assert config.eval_env is not None
    torch_device = resolve_device(device)
    env = build_env(config.env_id, without_records(config.eval_env))
    try:
        policy = build_policy(
            config.policy,
            env.flattened_observation_space,
            env.single_action_space,
            torch_device,
            observation_space=env.single_observation_space,
        )
        with loading(run.checkpoint):
            load_policy_state(policy, run.content["policy"], str(run.checkpoint))
        policy.eval()
        yield OpenRun(config, env, policy, torch_device)
    finally:
        env.close()


def without_records(cfg: EmbodiedEnvCfg) -> EmbodiedEnvCfg:
    """Return an environment's config without what writes files: videos, trajectories, datasets."""
    recorders = (record_camera_data, record_trajectory)

    def records(func: Any) -> bool:
        return isinstance(func, type) and issubclass(func, recorders)

    events = {name: event for name, event in cfg.events.items() if not records(event.func)}
    return replace(cfg, dataset={}, events=events)
