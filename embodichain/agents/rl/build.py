"""From typed configs to the objects of a run. With ``train.py``, the only place that knows learner and environments."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from embodichain.agents.rl.algo import BaseAlgorithm, build_algo
from embodichain.agents.rl.algo.registry import get_algo_class
from embodichain.agents.rl.models import Policy, build_policy
from embodichain.agents.rl.models.registry import check_policy_block
from embodichain.agents.rl.utils.config import TrainCfg, TrainerCfg, parse_train_config, read_train_config
from embodichain.agents.rl.utils.evaluation import Evaluator
from embodichain.agents.rl.utils.run_log import JsonLinesSink, RunLog, Sink, TensorBoardSink, WandbSink
from embodichain.agents.rl.utils.trainer import Trainer, TrainerOptions
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers.cfg import EventCfg
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.gym.utils.gym_utils import config_to_cfg, events_to_cfg
from embodichain.lab.gym.utils.registration import get_env_spec, get_registered_env_ids
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


def load_run_config(path: str | Path, overrides: Sequence[str] = (), allowed_imports: Sequence[str] = ()) -> RunConfig:
    """Read and check a training config and the environment config that it names.

    Args:
        path: of the training config.
        overrides: ``trainer.num_envs=256`` and the like.
        allowed_imports: prefixes of the modules that ``trainer.import_modules`` may name.

    Raises:
        ConfigError: with every error found, a line each.
    """
    data = read_train_config(path, overrides)
    trainer, policy, algorithm = (_block(data, name) for name in ("trainer", "policy", "algorithm"))
    modules = trainer.get("import_modules")
    if isinstance(modules, list) and all(isinstance(module, str) for module in modules):
        import_allowed_modules(modules, allowed_imports, "trainer.import_modules")
    # Each check reads the plain data, so that an error in one place hides none in another.
    errors: list[str] = []
    with _collected(errors):
        train = parse_train_config(data)
    with _collected(errors):
        _check_policy(policy)
    with _collected(errors):
        _check_algorithm(algorithm)
    events: dict[str, dict[str, EventCfg]] = {}
    for name, block in _block(trainer, "events").items():
        with _collected(errors):
            events[name] = events_to_cfg(block if isinstance(block, dict) else {}, f"trainer.events.{name}")
    if isinstance(trainer.get("gym_config"), str):
        with _collected(errors):
            env_id, cfg, env_data = _read_env_config(trainer["gym_config"], Path(path).parent)
    if errors:
        raise ConfigError("\n".join(errors))
    env, eval_env = _env_configs(cfg, train.trainer, events)
    resolved = train.to_dict() | {"gym_config": env_data}  # type: ignore[attr-defined]
    return RunConfig(train, env_id, env, eval_env, resolved)


def build_envs(run: RunConfig) -> tuple[EmbodiedEnv, EmbodiedEnv | None]:
    """Build the training environment, and the one for evaluation where the config enables it.

    Raises:
        ConfigError: a config does not fit the scene, or evaluation episodes would have no end.
    """
    limit = run.env.max_episode_steps or get_env_spec(run.env_id).max_episode_steps
    if run.eval_env is not None and limit is None:
        raise ConfigError("max_episode_steps: evaluation needs a time limit, and neither config nor task gives one")
    env = build_env(run.env_id, run.env)
    try:
        return env, None if run.eval_env is None else build_env(run.env_id, run.eval_env)
    except BaseException:
        env.close()
        raise


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
) -> Trainer:
    """Put a run's parts together, and write the resolved config into its folder.

    Where that fails, the folder is taken away again.
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
    )
    with ExitStack() as undo:
        undo.callback(folder.remove)
        (folder.path / "config.json").write_text(json.dumps(run.resolved, indent=2) + "\n", encoding="utf-8")
        sinks: list[Sink] = []
        if cfg.use_wandb:
            sinks.append(WandbSink(cfg.wandb_project_name, folder.path.name, folder.path, run.resolved))
        log = RunLog([*sinks, TensorBoardSink(folder.path / "logs"), JsonLinesSink(folder.metrics)])
        undo.callback(log.close)
        env.start_recording(folder.path / "videos", "train")
        trainer = Trainer(options, env, policy, algorithm, log, evaluator)
        undo.pop_all()
    return trainer


@contextmanager
def _collected(errors: list[str], place: str = "") -> Iterator[None]:
    """Keep the lines of a ConfigError, with the place put before them, and go on."""
    try:
        yield
    except ConfigError as error:
        errors += [place + line for line in str(error).splitlines()]


def _block(data: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a block of a config, or an empty one where there is none."""
    block = data.get(name)
    return block if isinstance(block, dict) else {}


def _check_policy(block: dict[str, Any]) -> None:
    if "name" in block and not isinstance(block["name"], str):
        raise ConfigError(f"policy.name: Input should be a valid string, got {block['name']!r}")
    if block:
        check_policy_block(block)


def _check_algorithm(block: dict[str, Any]) -> None:
    if isinstance(block.get("name"), str):
        from_dict(get_algo_class(block["name"]).cfg_class, _block(block, "cfg"), "algorithm.cfg")


def _read_env_config(name: str, folder: Path) -> tuple[str, EmbodiedEnvCfg, dict[str, Any]]:
    """Return the environment's registered name, its config, and the same as plain data."""
    path = _find_gym_config(name, folder)
    data = load_config_file(path)
    env_id = data.get("id")
    errors: list[str] = []
    with _collected(errors, f"{path}: id: "):
        if not isinstance(env_id, str):
            known = ", ".join(get_registered_env_ids())
            raise ConfigError(f"the name of an environment is needed, got {env_id!r}. Known: {known}")
        get_env_spec(env_id)
    with _collected(errors, f"{path}: "):
        cfg = config_to_cfg(data)
    if errors:
        raise ConfigError("\n".join(errors))
    return str(env_id), cfg, data


def _find_gym_config(name: str, folder: Path) -> Path:
    candidates = [Path(name), folder / name]
    for path in candidates:
        if path.is_file():
            return path
    raise ConfigError(f"trainer.gym_config: no such file: {candidates[0].absolute()} or {candidates[1].absolute()}")


def _env_configs(
    cfg: EmbodiedEnvCfg, trainer: TrainerCfg, events: dict[str, dict[str, EventCfg]]
) -> tuple[EmbodiedEnvCfg, EmbodiedEnvCfg | None]:
    """Return the environment's configs for training and, if enabled, for evaluation."""
    sim_cfg = replace(cfg.sim_cfg, headless=trainer.headless, enable_rt=trainer.enable_rt, gpu_id=trainer.gpu_id)
    cfg = replace(cfg, seed=trainer.seed, sim_cfg=sim_cfg, num_envs=trainer.num_envs or cfg.num_envs)
    env = replace(cfg, events=cfg.events | events.get("train", {}))
    if not trainer.enable_eval:
        return env, None
    return env, replace(cfg, events=cfg.events | events.get("eval", {}), num_envs=trainer.num_eval_envs)
