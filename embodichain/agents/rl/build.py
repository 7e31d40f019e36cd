"""From typed configs to the objects of a run. With ``train.py``, the only place that knows learner and environments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from embodichain.agents.rl.algo import BaseAlgorithm, build_algo
from embodichain.agents.rl.algo.registry import get_algo_class
from embodichain.agents.rl.models import Policy, build_policy
from embodichain.agents.rl.models.registry import check_policy_block
from embodichain.agents.rl.utils.config import TrainCfg, TrainerCfg, load_train_config
from embodichain.agents.rl.utils.evaluation import Evaluator
from embodichain.agents.rl.utils.run_log import JsonLinesSink, RunLog, Sink, TensorBoardSink, WandbSink
from embodichain.agents.rl.utils.trainer import Trainer, TrainerOptions
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.gym.utils.gym_utils import config_to_cfg, events_to_cfg
from embodichain.lab.gym.utils.registration import get_env_spec
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from embodichain.utils.module_utils import import_allowed_modules
from embodichain.utils.utility import load_config_file
from embodichain.utils.validation import from_dict

__all__ = ["RunConfig", "RunFolder", "build_envs", "build_learner", "build_trainer", "load_run_config"]

_EVAL_SEED_OFFSET = 1_000_003  # keeps the evaluation's episodes apart from the training's


@dataclass(frozen=True)
class RunConfig:
    """Everything that a run is made from, read and checked.

    Attributes:
        train: the training config.
        env_id: the registered environment.
        env: its config for training.
        eval_env: its config for evaluation, or None.
        resolved: all of it as plain data, for the record.
    """

    train: TrainCfg
    env_id: str
    env: EmbodiedEnvCfg
    eval_env: EmbodiedEnvCfg | None
    resolved: dict[str, Any]


@dataclass(frozen=True)
class RunFolder:
    """The folder ``outputs/<exp_name>_<date>_<time>`` of a run."""

    path: Path

    @classmethod
    def create(cls, exp_name: str) -> RunFolder:
        """Make the folder in the working directory.

        Raises:
            ConfigError: it cannot be written.
        """
        path = Path("outputs") / f"{exp_name}_{datetime.now():%Y%m%d_%H%M%S}"
        try:
            path.mkdir(parents=True)
            for name in ("logs", "checkpoints"):
                (path / name).mkdir()
        except OSError as error:
            raise ConfigError(f"output folder {path.absolute()}: cannot be made: {error.strerror}") from error
        return cls(path)

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


def load_run_config(path: str | Path, overrides: Sequence[str] = (), allowed_imports: Sequence[str] = ()) -> RunConfig:
    """Read and check a training config and the environment config that it names.

    Args:
        path: of the training config.
        overrides: ``trainer.num_envs=256`` and the like.
        allowed_imports: prefixes of the modules that ``trainer.import_modules`` may name.

    Raises:
        ConfigError: with every error found, a line each.
    """
    train = load_train_config(path, overrides)
    import_allowed_modules(train.trainer.import_modules, allowed_imports, "trainer.import_modules")
    errors: list[str] = []
    _collect(errors, check_policy_block, train.policy)
    _collect(errors, _check_algorithm, train)
    env_path = _find_gym_config(train.trainer.gym_config, Path(path).parent)
    data = load_config_file(env_path)
    env_id = data.get("id")
    _collect(errors, get_env_spec, str(env_id))
    env = eval_env = None
    try:
        env, eval_env = _env_configs(data, train.trainer)
    except ConfigError as error:
        errors += [f"{env_path}: {line}" for line in str(error).splitlines()]
    if errors:
        raise ConfigError("\n".join(errors))
    assert env is not None
    resolved = train.to_dict() | {"gym_config": data}  # type: ignore[attr-defined]
    return RunConfig(train, str(env_id), env, eval_env, resolved)


def build_envs(run: RunConfig) -> tuple[EmbodiedEnv, EmbodiedEnv | None]:
    """Build the training environment, and the one for evaluation where the config enables it.

    Raises:
        ConfigError: a config does not fit the scene, or evaluation episodes would have no end.
    """
    env = build_env(run.env_id, run.env)
    if run.eval_env is None:
        return env, None
    eval_env = build_env(run.env_id, run.eval_env)
    if eval_env.cfg.max_episode_steps is None:
        raise ConfigError("max_episode_steps: evaluation needs a time limit, and neither config nor task gives one")
    return env, eval_env


def build_learner(run: RunConfig, env: EmbodiedEnv, device: torch.device) -> tuple[Policy, BaseAlgorithm]:
    """Build the policy and the algorithm that improves it."""
    policy = build_policy(run.train.policy, env.flattened_observation_space, env.single_action_space, device)
    algorithm = build_algo(run.train.algorithm.name, run.train.algorithm.cfg, policy, device)
    return policy, algorithm


def build_trainer(
    run: RunConfig,
    folder: RunFolder,
    env: EmbodiedEnv,
    eval_env: EmbodiedEnv | None,
    policy: Policy,
    algorithm: BaseAlgorithm,
) -> Trainer:
    """Put a run's parts together, and write the resolved config into its folder."""
    cfg = run.train.trainer
    (folder.path / "config.json").write_text(json.dumps(run.resolved, indent=2) + "\n", encoding="utf-8")
    sinks: list[Sink] = [TensorBoardSink(folder.path / "logs"), JsonLinesSink(folder.metrics)]
    if cfg.use_wandb:
        sinks.append(WandbSink(cfg.wandb_project_name, folder.path.name, folder.path, run.resolved))
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
    )
    return Trainer(options, env, policy, algorithm, RunLog(sinks), evaluator)


def _check_algorithm(train: TrainCfg) -> None:
    from_dict(get_algo_class(train.algorithm.name).cfg_class, train.algorithm.cfg, "algorithm.cfg")


def _find_gym_config(name: str, folder: Path) -> Path:
    candidates = [Path(name), folder / name]
    for path in candidates:
        if path.is_file():
            return path
    raise ConfigError(f"trainer.gym_config: no such file: {candidates[0].absolute()} or {candidates[1].absolute()}")


def _env_configs(data: dict[str, Any], trainer: TrainerCfg) -> tuple[EmbodiedEnvCfg, EmbodiedEnvCfg | None]:
    """Return the environment's configs for training and, if enabled, for evaluation."""
    cfg = config_to_cfg(data)
    sim_cfg = replace(cfg.sim_cfg, headless=trainer.headless, enable_rt=trainer.enable_rt, gpu_id=trainer.gpu_id)
    cfg = replace(cfg, seed=trainer.seed, sim_cfg=sim_cfg, num_envs=trainer.num_envs or cfg.num_envs)
    train_events = events_to_cfg(trainer.events.train, "trainer.events.train")
    eval_events = events_to_cfg(trainer.events.eval, "trainer.events.eval")
    env = replace(cfg, events=cfg.events | train_events)
    if not trainer.enable_eval:
        return env, None
    return env, replace(cfg, events=cfg.events | eval_events, num_envs=trainer.num_eval_envs)


def _collect(errors: list[str], check: Any, value: Any) -> None:
    try:
        check(value)
    except ConfigError as error:
        errors += str(error).splitlines()
