"""From a run's checked config to its objects. With ``run_config.py`` and ``train.py``, all that knows both worlds."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict

from embodichain.agents.rl.algo import BaseAlgorithm, build_algo
from embodichain.agents.rl.buffer import VLABuffer
from embodichain.agents.rl.collector import AsyncCollector, BaseCollector
from embodichain.agents.rl.models import Policy, build_policy
from embodichain.agents.rl.run_config import RunConfig, load_checkpoint_config, load_run_config
from embodichain.agents.rl.utils.checkpoint import write_atomically
from embodichain.agents.rl.utils.evaluation import Evaluator
from embodichain.agents.rl.utils.resume import ResumePoint, rewind_metrics
from embodichain.agents.rl.utils.run_log import JsonLinesSink, RunLog, TensorBoardSink, WandbSink
from embodichain.agents.rl.utils.trainer import Trainer, TrainerOptions
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace

__all__ = [
    "RunConfig",
    "RunFolder",
    "build_env_groups",
    "build_envs",
    "build_learner",
    "build_trainer",
    "load_checkpoint_config",
    "load_run_config",
]

_EVAL_SEED_OFFSET = 1_000_003  # keeps the evaluation's episodes apart from the training's


@dataclass(frozen=True)
class RunFolder:
    """The folder ``outputs/<exp_name>_<date>_<time>`` of a run."""

    path: Path

    @classmethod
    def create(cls, exp_name: str) -> RunFolder:
        """Make the folder in the working directory; where another run began in the same second, wait for the next.

        Raises:
            ConfigError: it cannot be written.
        """
        while True:
            path = Path("outputs") / f"{exp_name}_{datetime.now():%Y%m%d_%H%M%S}"
            try:
                path.mkdir(parents=True)
            except OSError as error:
                if path.exists():
                    time.sleep(0.1)
                    continue
                raise ConfigError(f"output folder {path.absolute()}: cannot be made: {error.strerror}") from error
            for name in ("logs", "checkpoints"):
                (path / name).mkdir()
            return cls(path)

    def remove(self) -> None:
        """Take the folder away again, and ``outputs`` where nothing else is in it."""
        shutil.rmtree(self.path)
        with suppress(OSError):
            self.path.parent.rmdir()

    @property
    def metrics(self) -> Path:
        """One JSON line an iteration."""
        return self.path / "metrics.jsonl"

    @property
    def learning_curve(self) -> Path:
        """The picture."""
        return self.path / "learning_curve.png"

    @property
    def summary(self) -> Path:
        """What came of the run."""
        return self.path / "summary.json"


def build_envs(run: RunConfig) -> tuple[EmbodiedEnv, EmbodiedEnv | None]:
    """Build the training environment, and the one for evaluation where the config enables it.

    Raises:
        ConfigError: a config does not fit the scene.
    """
    env = build_env(run.env_id, run.env)
    try:
        return env, None if run.eval_env is None else build_env(run.env_id, run.eval_env)
    except BaseException:
        env.close()
        raise


def build_env_groups(run: RunConfig) -> list[EmbodiedEnv]:
    """Build the further sets of training environments that asynchronous collection is to have.

    Raises:
        ConfigError: the config does not fit the scene.
    """
    asynchronous = run.train.trainer.collection()
    num_groups = 1 if asynchronous is None else asynchronous.env_groups
    envs: list[EmbodiedEnv] = []
    try:
        for group in range(1, num_groups):
            cfg = replace(run.env, first_env_id=run.env.first_env_id + group * run.env.num_envs)
            envs.append(build_env(run.env_id, cfg))
    except BaseException:
        for env in envs:
            env.close()
        raise
    return envs


def build_collector(
    run: RunConfig, envs: Sequence[EmbodiedEnv], policy: Policy, device: torch.device, check_stop: Callable[[], None]
) -> BaseCollector | None:
    """Build the collector that the config asks for; None: the trainer's own.

    Args:
        run: its config.
        envs: the sets of training environments.
        policy: the learner's policy.
        device: of the learner.
        check_stop: see ``Trainer``.
    """
    cfg = run.train.trainer.collection()
    if cfg is None:
        return None
    buffer = VLABuffer(cfg.buffer_capacity or cfg.max_staleness + 1)

    def on_step(step: TensorDict, info: dict[str, Any]) -> None:
        check_stop()

    return AsyncCollector(envs, policy, buffer, device, on_step, max_staleness=cfg.max_staleness)


def build_learner(run: RunConfig, env: EmbodiedEnv, device: torch.device) -> tuple[Policy, BaseAlgorithm]:
    """Build the policy and the algorithm that improves it."""
    policy = build_policy(
        run.train.policy,
        env.flattened_observation_space,
        env.single_action_space,
        device,
        observation_space=env.single_observation_space,
    )
    algorithm = build_algo(run.train.algorithm.name, run.train.algorithm.cfg, policy, device)
    return policy, algorithm


def build_trainer(
    run: RunConfig,
    folder: RunFolder,
    env: EmbodiedEnv,
    eval_env: EmbodiedEnv | None,
    policy: Policy,
    algorithm: BaseAlgorithm,
    resume: ResumePoint | None = None,
    check_stop: Callable[[], None] = lambda: None,
    env_groups: Sequence[EmbodiedEnv] = (),
) -> Trainer:
    """Put a run's parts together, and write the resolved config into its folder.

    Args:
        run: its config.
        folder: its folder. If it is a new one and something fails, it is taken away again.
        env: the training environment.
        eval_env: the one for evaluation, if any.
        policy: the policy.
        algorithm: improves it.
        resume: where to go on.
        check_stop: see ``Trainer``.
        env_groups: further sets of training environments, from ``build_env_groups``.
    """
    cfg = run.train.trainer
    evaluator = None
    if eval_env is not None:
        seed = cfg.seed + _EVAL_SEED_OFFSET
        evaluator = Evaluator(eval_env, cfg.num_eval_episodes, seed, algorithm.device, folder.path / "videos")
    options = TrainerOptions(
        exp_name=cfg.exp_name,
        buffer_size=cfg.buffer_size,
        eval_freq=cfg.eval_freq,
        save_freq=cfg.save_freq,
        checkpoint_dir=folder.path / "checkpoints",
        config=run.resolved,
        keep_last=cfg.keep_last,
    )
    with ExitStack() as undo:
        if resume is None:
            undo.callback(folder.remove)
        log = RunLog()
        undo.callback(log.close)
        collector = build_collector(run, [env, *env_groups], policy, algorithm.device, check_stop)
        trainer = Trainer(options, env, policy, algorithm, log, evaluator, check_stop, collector)
        step, wall_time, last_step = None, 0.0, None
        if resume is not None:
            # Last of what can fail, since what the run logged beyond the checkpoint is given up here.
            trainer.load_state_dict(resume.content)
            trainer.checkpoints.remove_unfinished()
            trainer.checkpoints.point_latest(resume.path)
            trainer.last_checkpoint, step = resume.path, trainer.global_step
            wall_time, last_step = rewind_metrics(folder.metrics, step)
        config = json.dumps(run.resolved, indent=2) + "\n"
        write_atomically(folder.path / "config.json", lambda file: file.write(config.encode()))
        if cfg.use_wandb:
            log.add(WandbSink(cfg.wandb_project_name, folder.path.name, folder.path, run.resolved, last_step))
        log.add(TensorBoardSink(folder.path / "logs", step))
        log.add(JsonLinesSink(folder.metrics, wall_time))
        env.start_recording(folder.path / "videos", "train" if step is None else f"train_from_step_{step}")
        undo.pop_all()
    return trainer
