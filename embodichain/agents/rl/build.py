"""From a run's checked config to its objects. With ``run_config.py`` and ``train.py``, all that knows both worlds."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict

from embodichain.agents.rl.algo import BaseAlgorithm, build_algo
from embodichain.agents.rl.algo.registry import get_algo_class
from embodichain.agents.rl.buffer import VLABuffer, check_sequences
from embodichain.agents.rl.buffer.layout import allocate_rollout
from embodichain.agents.rl.checkpoint.content import loading
from embodichain.agents.rl.checkpoint.resume import ResumePoint
from embodichain.agents.rl.collector import AsyncCollector, BaseCollector, ProcessEnv
from embodichain.agents.rl.distributed import Ranks, get_ranks
from embodichain.agents.rl.init_from import init_policy
from embodichain.agents.rl.metrics.metrics_file import rewind_metrics
from embodichain.agents.rl.metrics.sinks import JsonLinesSink, RunLog, TensorBoardSink, WandbSink
from embodichain.agents.rl.models import Policy, build_policy, check_policy
from embodichain.agents.rl.models.block import space_size
from embodichain.agents.rl.run_config import RunConfig, check_sizes, load_checkpoint_config, load_run_config
from embodichain.agents.rl.trainer.trainer import Trainer
from embodichain.agents.rl.trainer.viewer import BrowserViewer, NoViewer, Viewer
from embodichain.agents.rl.vec_env import VecEnv
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers.cfg import EventCfg
from embodichain.lab.gym.envs.managers.record import record_camera_data, record_trajectory
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.sim.rendering.live_scene import LiveScene
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace, to_dict
from embodichain.utils.files import remove_unfinished, write_json
from embodichain.utils.memory import check_memory
from embodichain.utils.observations import entry_spaces
from embodichain.utils.threads import torch_threads

__all__ = [
    "RunConfig",
    "RunFolder",
    "TrainingEnv",
    "build_env_groups",
    "build_env_policy",
    "build_envs",
    "build_learner",
    "build_trainer",
    "for_rank",
    "load_checkpoint_config",
    "load_run_config",
]


class TrainingEnv(VecEnv, Protocol):
    """What a training needs of its environments, be they in this process or in one of their own."""

    @property
    def single_action_space(self) -> spaces.Space[Any]:
        """Of one environment."""

    @property
    def single_observation_space(self) -> spaces.Dict:
        """The structured one of one environment."""

    def write_into(self, folder: Path, allowed: Sequence[str | Path] = ()) -> None:
        """Let terms write their files below a folder."""

    def start_recording(self, folder: Path, label: str) -> None:
        """Record videos from now on."""

    def close(self) -> None:
        """Release what the environments hold."""


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
            folder = cls(path)
            try:
                path.mkdir(parents=True)
            except OSError as error:
                if path.exists():
                    time.sleep(0.1)
                    continue
                raise ConfigError(f"output folder {path.absolute()}: cannot be made: {error.strerror}") from error
            try:
                for name in ("logs", "checkpoints"):
                    (path / name).mkdir()
            except OSError as error:
                folder.remove()
                raise ConfigError(f"output folder {path.absolute()}: cannot be written: {error.strerror}") from error
            return folder

    def remove(self) -> None:
        """Take the folder away again, and ``outputs`` where nothing else is in it."""
        shutil.rmtree(self.path)
        with suppress(OSError):
            self.path.parent.rmdir()

    def has_results(self) -> bool:
        """Return whether there is anything to look at or to go on from: a checkpoint, a metric or a bundle."""
        is_logged = self.metrics.exists() and self.metrics.stat().st_size > 0
        return is_logged or any(self.path.glob("checkpoints/*.pt")) or any(self.path.glob("bundles/**/*.pt"))

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


@contextmanager
def _writing(folder: RunFolder) -> Iterator[None]:
    """Turn an OSError into a ConfigError about the run's folder."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"run folder {folder.path.absolute()}: cannot be written: {error}") from error


def for_rank(run: RunConfig, ranks: Ranks, num_threads: int, device: torch.device) -> RunConfig:
    """Return the config for one of several processes: its share of the environments' ids, and of the machine.

    Only rank 0 records videos, trajectories and datasets, all of its own environments.

    Args:
        run: the config, the same on all ranks.
        ranks: of the training.
        num_threads: of the physics, where the config does not say.
        device: the process's own; what the config has on a GPU is on this one.
    """

    def share(cfg: EmbodiedEnvCfg, num_envs: int, first_env_id: int) -> EmbodiedEnvCfg:
        own = {"num_threads": cfg.sim_cfg.num_threads or num_threads}
        places = {name: str(getattr(cfg.sim_cfg, name)) for name in ("sim_device", "render_device")}
        on_gpu = {name: str(device) for name, place in places.items() if place.startswith("cuda")}
        sim_cfg = replace(cfg.sim_cfg, **own, **on_gpu)
        changes: dict[str, Any] = {"num_envs": num_envs, "first_env_id": first_env_id, "sim_cfg": sim_cfg}
        if not ranks.is_main:
            changes["dataset"] = {}
            changes["events"] = {name: event for name, event in cfg.events.items() if not _records(event)}
        return replace(cfg, **changes)

    num_envs, eval_env = run.env.num_envs, run.eval_env
    if eval_env is not None:
        eval_env = share(eval_env, -(-eval_env.num_envs // ranks.world_size), 0)
    return dataclasses.replace(run, env=share(run.env, num_envs, ranks.rank * num_envs), eval_env=eval_env)


def build_envs(run: RunConfig) -> tuple[TrainingEnv, EmbodiedEnv | None]:
    """Build the training environment, and the one for evaluation where the config enables it.

    Raises:
        ConfigError: a config does not fit the scene.
    """
    env = _build_training_env(run, run.env)
    try:
        return env, None if run.eval_env is None else build_env(run.env_id, run.eval_env)
    except BaseException:
        env.close()
        raise


def build_env_groups(run: RunConfig) -> list[TrainingEnv]:
    """Build the further sets of training environments that asynchronous collection is to have.

    Raises:
        ConfigError: the config does not fit the scene.
    """
    asynchronous = run.trainer.collection()
    num_groups = 1 if asynchronous is None else asynchronous.env_groups
    envs: list[TrainingEnv] = []
    try:
        for group in range(1, num_groups):
            cfg = replace(run.env, first_env_id=run.env.first_env_id + group * run.env.num_envs)
            envs.append(_build_training_env(run, cfg))
    except BaseException:
        for env in envs:
            env.close()
        raise
    return envs


def build_collector(
    run: RunConfig, envs: Sequence[TrainingEnv], policy: Policy, device: torch.device, check_stop: Callable[[], None]
) -> BaseCollector | None:
    """Build the collector that the config asks for; None: the trainer's own.

    Args:
        run: its config.
        envs: the sets of training environments.
        policy: the learner's policy.
        device: of the learner.
        check_stop: see ``Trainer``.
    """
    cfg = run.trainer.collection()
    if cfg is None:
        return None
    buffer = VLABuffer(cfg.buffer_capacity or cfg.max_staleness + 1)

    def on_step(step: TensorDict, info: dict[str, Any]) -> None:
        check_stop()

    return AsyncCollector(envs, policy, buffer, device, on_step, max_staleness=cfg.max_staleness)


def build_env_policy(run: RunConfig, env: TrainingEnv, device: torch.device) -> Policy:
    """Build the policy for an environment."""
    return build_policy(
        run.policy,
        env.flattened_observation_space,
        env.single_action_space,
        device,
        observation_space=env.single_observation_space,
    )


def build_learner(
    run: RunConfig, env: TrainingEnv, device: torch.device, is_resumed: bool = False
) -> tuple[Policy, BaseAlgorithm]:
    """Build the policy and the algorithm that improves it.

    Args:
        run: its config.
        env: the training environment.
        device: of the learner.
        is_resumed: the policy's parameters come from the run's own checkpoint, and not by ``policy.init_from``.

    Raises:
        ConfigError: the policy's block does not fit the environment, or its chunks of actions or its sequences not
            the rollouts, or these not the memory; a user's policy lacks something; or ``policy.init_from`` cannot be
            taken.
    """
    with torch_threads(1):  # so that the first parameters do not depend on how many processors there are
        policy = build_env_policy(run, env, device)
    if not is_resumed:
        init_policy(policy, run.policy)  # before the algorithm is made, which may keep a copy of it
    _check_chunks(run, policy.chunk_length)
    _check_rollout_memory(run, env, policy, device)
    check_policy(
        policy,
        env.flattened_observation_space,
        env.single_action_space,
        device,
        observation_space=env.single_observation_space,
        evaluated=get_algo_class(run.algorithm_name).reads_evaluated,
    )
    is_shared = get_ranks().world_size > 1
    algorithm = build_algo(run.algorithm_name, to_dict(run.algorithm), policy, device, distributed=is_shared)
    check_sequences(policy, run.trainer.buffer_size // policy.chunk_length, algorithm.batch_size)
    return policy, algorithm


def _check_rollout_memory(run: RunConfig, env: TrainingEnv, policy: Policy, device: torch.device) -> None:
    """Refuse rollouts that are larger than the memory there is."""
    known, num_steps = entry_spaces(env.single_observation_space), run.trainer.buffer_size
    entries = {
        key: torch.from_numpy(np.empty((0, *known[key].shape), known[key].dtype))
        for key in policy.obs_keys
        if key in known
    }
    rollout = allocate_rollout(
        env.num_envs,
        num_steps // policy.chunk_length,
        space_size(env.flattened_observation_space),
        space_size(env.single_action_space),
        "meta",  # of which nothing is allocated
        extra_fields=policy.extra_fields,
        state_size=policy.state_size,
        entries=TensorDict(entries, batch_size=[0]) if entries else None,
        chunk_length=policy.chunk_length,
        log_prob_size=policy.log_prob_size,
    )
    what = f"the {num_steps:,} steps of a rollout in {env.num_envs:,} environments"
    check_memory("trainer.buffer_size", what, rollout.bytes(), device)


def build_trainer(
    run: RunConfig,
    folder: RunFolder,
    env: TrainingEnv,
    eval_env: EmbodiedEnv | None,
    policy: Policy,
    algorithm: BaseAlgorithm,
    resume: ResumePoint | None = None,
    check_stop: Callable[[], None] = lambda: None,
    allowed_writes: Sequence[str] = (),
    env_groups: Sequence[TrainingEnv] = (),
) -> Trainer:
    """Put a run's parts together, and write the resolved config into its folder. Only rank 0 writes.

    Args:
        run: its config.
        folder: its folder. If it is a new one and something fails, it is taken away again.
        env: the training environment.
        eval_env: the one for evaluation, if any.
        policy: the policy.
        algorithm: improves it.
        resume: where to go on.
        check_stop: see ``Trainer``.
        allowed_writes: folders beside the run's that a ``save_path`` may name.
        env_groups: further sets of training environments, from ``build_env_groups``.

    Raises:
        ConfigError: the folder cannot be written, or the checkpoint does not hold this training's state.
    """
    cfg = run.trainer
    env.write_into(folder.path, allowed_writes)
    if eval_env is not None:
        eval_env.write_into(folder.path / "eval", allowed_writes)
    with ExitStack() as undo:
        # Outermost, so that the folder is gone when it is said.
        undo.enter_context(_writing(folder))
        is_main = get_ranks().is_main
        if resume is None and is_main:
            undo.callback(folder.remove)
        log = RunLog()
        undo.callback(log.close)
        collector = build_collector(run, [env, *env_groups], policy, algorithm.device, check_stop)
        viewer = _open_viewer(env) if cfg.viewer and is_main else NoViewer()
        undo.callback(viewer.close)
        ranks = get_ranks()
        trainer = Trainer(
            policy=policy,
            env=env,
            algorithm=algorithm,
            buffer_size=cfg.buffer_size,
            eval_freq=cfg.eval_freq,
            save_freq=cfg.save_freq,
            checkpoint_dir=folder.path / "checkpoints",
            exp_name=cfg.exp_name,
            eval_env=eval_env,
            num_eval_episodes=cfg.num_eval_episodes,
            distributed=ranks.world_size > 1,
            rank=ranks.rank,
            world_size=ranks.world_size,
            cfg=cfg,
            config=run.resolved,
            log=log,
            check_stop=check_stop,
            collector=collector,
            viewer=viewer,
        )
        step, wall_time, last_step = None, 0.0, None
        if resume is not None:
            with loading(resume.path):
                trainer.load_state_dict(resume.content)
            trainer.last_checkpoint, step = resume.path, trainer.global_step
        if not is_main:
            undo.pop_all()
            return trainer
        if resume is not None and step is not None:
            # Last of what can fail, since what the run logged beyond the checkpoint is given up here.
            for place in (folder.path, trainer.checkpoints.path):
                remove_unfinished(place)
            trainer.checkpoints.take_up(resume.path, resume.content)
            wall_time, last_step = rewind_metrics(folder.metrics, step)
        write_json(folder.path / "config.json", run.resolved, indent=2)
        if cfg.use_wandb:
            log.add(WandbSink(cfg.wandb_project_name, folder.path.name, folder.path, run.resolved, last_step))
        log.add(TensorBoardSink(folder.path / "logs", step))
        log.add(JsonLinesSink(folder.metrics, wall_time))
        env.start_recording(folder.path / "videos", "train" if step is None else f"train_from_step_{step}")
        undo.pop_all()
    return trainer


def _build_training_env(run: RunConfig, cfg: EmbodiedEnvCfg) -> TrainingEnv:
    collection = run.trainer.collection()
    if collection is None or collection.backend == "thread":
        return build_env(run.env_id, cfg)
    return ProcessEnv(partial(build_env, run.env_id, cfg), run.trainer.import_modules)


def _open_viewer(env: TrainingEnv) -> Viewer:
    assert isinstance(env, EmbodiedEnv)  # the config refuses a viewer where environments have a process of their own
    return BrowserViewer(partial(LiveScene, backend=env.sim.backend, appearance=env.sim.appearance))


def _check_chunks(run: RunConfig, length: int) -> None:
    """Check that rollouts can be made of chunks of so many actions, and minibatches of them."""
    size = run.trainer.buffer_size
    if length == 1:
        return
    if size % length:
        below = size // length * length
        near = " or ".join(str(multiple) for multiple in (below, below + length) if multiple)
        raise ConfigError(
            f"trainer.buffer_size: {size} steps cannot be divided into chunks of {length} actions "
            f"(policy.chunk_length); the nearest multiple is {near}"
        )
    problems = check_sizes(run.algorithm, run.env.num_envs, size // length)
    if problems:
        raise ConfigError(f"{problems[0]}, since each decision is a chunk of {length} actions (policy.chunk_length)")


def _records(event: EventCfg) -> bool:
    return isinstance(event.func, type) and issubclass(event.func, (record_camera_data, record_trajectory))
