"""A run's checked config -> environments, policy, algorithm, collector, trainer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

from embodichain.agents.rl import buffer, collector
from embodichain.agents.rl.algo import BaseAlgorithm, build_algo
from embodichain.agents.rl.build_checks import check_built_policy, check_rollouts
from embodichain.agents.rl.checkpoint.saved_run import SavedRun
from embodichain.agents.rl.demonstrations import load_demonstrations
from embodichain.agents.rl.distributed import get_process_group
from embodichain.agents.rl.distributed.placement import Placement
from embodichain.agents.rl.metrics.sinks import RunLog
from embodichain.agents.rl.models import Policy, build_policy
from embodichain.agents.rl.run_config import RunConfig
from embodichain.agents.rl.run_folder import RunFolder, begin_writing, writing_into
from embodichain.agents.rl.task_env import TaskEnv, scene_env, with_scene
from embodichain.agents.rl.trainer import viewer as viewers
from embodichain.agents.rl.trainer.init_from import init_policy
from embodichain.agents.rl.trainer.trainer import Trainer
from embodichain.agents.rl.trainer.viewer import Viewer, check_viewer_is_installed
from embodichain.agents.rl.vec_env import mirror_map_of
from embodichain.lab.gym.env_sources import TaskCfg, find_source
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.sim.rendering.live_scene import LiveScene
from embodichain.utils.configclass import replace
from embodichain.utils.device import torch_threads
from embodichain.utils.errors import placed


def for_rank(run: RunConfig, placement: Placement, num_threads: int, device: torch.device) -> RunConfig:
    """Return the config for one of several processes: its share of the environments' ids, and of the machine.

    Only rank 0 records videos, trajectories and datasets, all of its own environments.

    Args:
        num_threads: physics threads, unless the config has it.
        device: process's device; replaces any GPU in the config.
    """

    def share(cfg: TaskCfg, num_envs: int, first_env_id: int) -> TaskCfg:
        cfg = cfg.for_process(num_envs, first_env_id, num_threads, device)
        return cfg if placement.rank == 0 else cfg.without_records()

    num_envs, eval_env = run.env.num_envs, run.eval_env
    if eval_env is not None:
        eval_env = share(eval_env, -(-eval_env.num_envs // placement.world_size), 0)
    return dataclasses.replace(run, env=share(run.env, num_envs, placement.rank * num_envs), eval_env=eval_env)


def build_task(env_id: str, cfg: TaskCfg) -> TaskEnv:
    """Build environments of ours, or of another library.

    Raises:
        ConfigError: the config does not fit the environment.
    """
    source = find_source(env_id)
    env: TaskEnv = build_env(env_id, with_scene(cfg, env_id)) if source is None else source.build(cfg)
    return env


def build_envs(run: RunConfig) -> tuple[TaskEnv, TaskEnv | None]:
    """Build the training environments, and those for evaluation if the config enables it.

    Raises:
        ConfigError: a config does not fit the scene.
    """
    if run.trainer.viewer:
        check_viewer_is_installed()
    env = build_task(run.env_id, run.env)
    try:
        return env, None if run.eval_env is None else build_task(run.env_id, run.eval_env)
    except BaseException:
        env.close()
        raise


def build_env_sets(run: RunConfig) -> list[TaskEnv]:
    """Build the further env sets of asynchronous collection."""
    asynchronous = run.trainer.collection()
    sets: list[TaskEnv] = []
    try:
        for number in range(1, 1 if asynchronous is None else asynchronous.env_groups):
            cfg: TaskCfg = replace(run.env, first_env_id=run.env.first_env_id + number * run.env.num_envs)
            sets.append(build_task(run.env_id, cfg))
    except BaseException:
        for env in sets:
            env.close()
        raise
    return sets


def build_env_policy(run: RunConfig, env: TaskEnv, device: torch.device) -> Policy:
    """Build the policy for an environment."""
    return build_policy(
        run.policy,
        env.flattened_observation_space,
        env.single_action_space,
        device,
        observation_space=env.single_observation_space,
    )


def build_learner(
    run: RunConfig, env: TaskEnv, device: torch.device, is_resumed: bool = False
) -> tuple[Policy, BaseAlgorithm]:
    """Build the policy and the algorithm that improves it.

    Args:
        is_resumed: the policy's parameters come from the run's own checkpoint, and not by ``policy.init_from``.

    Raises:
        ConfigError: the policy does not fit the environment; its chunks or sequences do not fit the rollouts; the
            rollouts do not fit the memory; a user's policy lacks something; or ``policy.init_from`` cannot be loaded.
    """
    with torch_threads(1):  # so that the first parameters do not depend on the number of processors
        policy = build_env_policy(run, env, device)
    if not is_resumed and getattr(run.policy, "init_from", None) is not None:
        init_policy(policy, run.policy)  # before the algorithm is made, which may keep a copy of it
    check_built_policy(run, env, policy, device)
    is_shared = get_process_group().world_size > 1
    algorithm = build_algo(run.algorithm_name, run.algorithm, policy, device, distributed=is_shared)
    check_rollouts(run, env, algorithm)
    return policy, algorithm


def provide(algorithm: BaseAlgorithm, run: RunConfig, env: TaskEnv, folder: Path, is_resumed: bool = False) -> None:
    """Provide an algorithm's ``needs`` before the training.

    Args:
        folder: run's folder, for recordings; see ``load_demonstrations``.

    Raises:
        ConfigError: there is none, or it does not fit.
    """
    given: dict[str, Callable[[], Any]] = {
        "mirror_map": lambda: mirror_map_of(env),
        "demonstrations": lambda: load_demonstrations(run, folder, env, algorithm, is_resumed),
    }
    for name in algorithm.needs:
        getattr(algorithm, f"use_{name}")(given[name]())


def build_trainer(
    run: RunConfig,
    folder: RunFolder,
    env: TaskEnv,
    eval_env: TaskEnv | None,
    policy: Policy,
    algorithm: BaseAlgorithm,
    resume: SavedRun | None = None,
    check_stop: Callable[[], None] = lambda: None,
    allowed_writes: Sequence[str] = (),
    more_sets: Sequence[TaskEnv] = (),
) -> Trainer:
    """Build a run's trainer, and write the resolved config into its folder. Only rank 0 writes.

    Args:
        folder: a new one is removed if something fails.
        resume: the checkpoint to continue from.
        check_stop: see ``Trainer``.
        allowed_writes: folders outside the run's that a ``save_path`` may name.
        more_sets: result of ``build_env_sets``.

    Raises:
        ConfigError: the folder cannot be written, the algorithm's needs are not there, or the checkpoint does not
            hold this training's state.
    """
    cfg, process_group = run.trainer, get_process_group()
    env.write_into(folder.path, allowed_writes)
    if eval_env is not None:
        eval_env.write_into(folder.path / "eval", allowed_writes)
    with ExitStack() as undo:
        undo.enter_context(writing_into(folder))
        if resume is None and process_group.is_main:
            undo.callback(folder.remove)
        log = RunLog()
        undo.callback(log.close)
        background = None
        if algorithm.learns_from != "demonstrations" and (collection := cfg.collection()) is not None:
            background = collector.AsyncCollector(
                [env, *more_sets],
                policy,
                buffer.VLABuffer(collection.buffer_capacity or collection.max_staleness + 1),
                algorithm.device,
                lambda step, info: check_stop(),
                max_staleness=collection.max_staleness,
            )
        viewer = Viewer()
        if cfg.viewer and process_group.is_main and (scene := scene_env(env)) is not None:
            viewer = viewers.BrowserViewer(
                partial(LiveScene, backend=scene.sim.backend, appearance=scene.sim.appearance)
            )
            undo.callback(viewer.close)
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
            distributed=process_group.world_size > 1,
            rank=process_group.rank,
            world_size=process_group.world_size,
            cfg=cfg,
            config=run.resolved,
            log=log,
            check_stop=check_stop,
            collector=background,
            viewer=viewer,
        )
        provide(algorithm, run, env, folder.path, resume is not None)
        if resume is not None:
            with placed(f"{resume.checkpoint}: "):
                trainer.load_state_dict(resume.content)
            trainer.saver.last = resume.checkpoint
        if process_group.is_main:
            begin_writing(run, folder, env, trainer, log, resume)
        undo.pop_all()
    return trainer
