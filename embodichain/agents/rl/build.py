"""A run's checked config -> environments, policy, algorithm, collector, trainer; with checks of the built parts."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from embodichain.agents.rl import buffer, collector
from embodichain.agents.rl.algo import BaseAlgorithm, build_algo
from embodichain.agents.rl.algo.distillation import Teacher
from embodichain.agents.rl.algo.registry import get_algo_class
from embodichain.agents.rl.buffer.rollout_buffer import check_sequences, chunk_problems
from embodichain.agents.rl.checkpoint.saved_run import SavedRun, find_run
from embodichain.agents.rl.demonstrations import load_demonstrations
from embodichain.agents.rl.distributed import get_process_group, launch
from embodichain.agents.rl.metrics.sinks import RunLog
from embodichain.agents.rl.models import Policy, build_policy, get_registered_policy_names, load_policy_state
from embodichain.agents.rl.models.networks import group_entries
from embodichain.agents.rl.models.policy import PolicyBlock, allocate_for, check_policy, space_size
from embodichain.agents.rl.models.registry import UserPolicyCfg, setting_of, typed_policy
from embodichain.agents.rl.models.soft_actor_critic import SoftActorCriticCfg
from embodichain.agents.rl.run_config import RunConfig, load_checkpoint_config, scene_cfg, scene_env, with_scene
from embodichain.agents.rl.run_folder import begin_writing, remove_folder
from embodichain.agents.rl.trainer import viewer as viewers
from embodichain.agents.rl.trainer.trainer import Trainer
from embodichain.agents.rl.vec_env import TaskEnv, mirror_map_of
from embodichain.lab.gym.env_sources import TaskCfg, find_source
from embodichain.lab.gym.envs.tasks.rl import build_env
from embodichain.lab.sim.rendering.live_scene import LiveScene
from embodichain.utils import ConfigError, from_dict, logger, placed, raise_problems, replace
from embodichain.utils.device import check_memory, resolve_device, torch_threads
from embodichain.utils.module_utils import imports_allowed_by_environment
from embodichain.utils.observations import IMAGE_DIMS, entry_columns, entry_spaces, zero_entries
from embodichain.utils.utility import leaves_by_path

_PLACE = "policy.init_from: "
_OF_TRAINING = ("policy.", "algorithm.", "trainer.")
_OF_EPISODES = ("trainer.gym_config", "trainer.events.eval", "trainer.sim_device")
# Entries of a policy's block that decide how its parameters are used, other than names and shapes.
_MEANING = ("encoder", "actor", "critic", "squash", "scale_actions", "chunk_length", "obs_groups", "value_range")
_OF_START = ("orthogonal_init", "output_gain")  # keys of networks that decide the first parameters alone
_OF_DENSITY = ("init_log_std", "log_std_range", "slope_floor")  # likewise in SAC's, whose std is no parameter
_CRITICS = ("critic.", "critics.")  # how the names of critics' parameters begin


def for_rank(run: RunConfig, placement: launch.Placement, num_threads: int, device: torch.device) -> RunConfig:
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
    """Build environments of ours, or of another library."""
    source = find_source(env_id)
    env: TaskEnv = build_env(env_id, with_scene(cfg, env_id)) if source is None else source.build(cfg)
    return env


def build_envs(run: RunConfig) -> tuple[TaskEnv, TaskEnv | None]:
    """Build the training environments, and those for evaluation if the config enables it."""
    if run.trainer.viewer:
        viewers.check_viewer_is_installed()
    env = build_task(run.env_id, run.env)
    return env, None if run.eval_env is None else build_task(run.env_id, run.eval_env)


def build_env_sets(run: RunConfig) -> list[TaskEnv]:
    """Build the further env sets of asynchronous collection."""
    asynchronous, first, num_envs = run.trainer.collection(), run.env.first_env_id, run.env.num_envs
    numbers = range(1, 1 if asynchronous is None else asynchronous.env_groups)
    cfgs: list[TaskCfg] = [replace(run.env, first_env_id=first + number * num_envs) for number in numbers]
    return [build_task(run.env_id, cfg) for cfg in cfgs]


def build_env_policy(run: RunConfig, env: TaskEnv, device: torch.device) -> Policy:
    """Build the policy for an environment."""
    return build_policy(
        run.policy,
        env.flattened_observation_space,
        env.single_action_space,
        device,
        observation_space=env.single_observation_space,
    )


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
        if key.startswith(_OF_TRAINING) and not key.startswith(_OF_EPISODES):
            raise ConfigError(
                f"override '{override}': has no place here: the policy is the run's as it was trained, and only the "
                "task may change; options such as --seed choose the episodes"
            )
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
        overrides: overrides of the run's config: ``env.rewards.reach.weight=2`` and the like.
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


def build_learner(
    run: RunConfig, env: TaskEnv, device: torch.device, is_resumed: bool = False
) -> tuple[Policy, BaseAlgorithm]:
    """Build the policy and its algorithm; ``is_resumed``: parameters come from a checkpoint, not from ``init_from``."""
    with torch_threads(1):  # so that the first parameters do not depend on the number of processors
        policy = build_env_policy(run, env, device)
    if not is_resumed:
        # Before the algorithm is made, which may keep a copy of it.
        init_policy(policy, run.policy, run.resolved["gym_config"])
    check_built_policy(run, env, policy, device)
    is_shared = get_process_group().world_size > 1
    algorithm = build_algo(run.algorithm_name, run.algorithm, policy, device, distributed=is_shared)
    check_rollouts(run, env, algorithm)
    return policy, algorithm


def provide(algorithm: BaseAlgorithm, run: RunConfig, env: TaskEnv, folder: Path, is_resumed: bool = False) -> None:
    """Provide an algorithm's ``needs`` before the training; recordings go into the run's folder."""
    given: dict[str, Callable[[], Any]] = {
        "mirror_map": lambda: mirror_map_of(env),
        "demonstrations": lambda: load_demonstrations(run, folder, env, algorithm, is_resumed),
        "teacher": lambda: load_teacher(run, env),
    }
    for name in algorithm.needs:
        getattr(algorithm, f"use_{name}")(given[name]())


def build_trainer(
    run: RunConfig,
    folder: Path,
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
    """
    cfg, process_group = run.trainer, get_process_group()
    env.write_into(folder, allowed_writes)
    if eval_env is not None:
        eval_env.write_into(folder / "eval", allowed_writes)
    with ExitStack() as undo:
        if resume is None and process_group.is_main:
            undo.callback(remove_folder, folder)
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
        viewer = viewers.Viewer()
        if cfg.viewer and process_group.is_main and (scene := scene_env(env)) is not None:
            followed = None if scene.followed_uid is None else scene.sim.get_asset(scene.followed_uid)
            viewer = viewers.BrowserViewer(
                partial(LiveScene, backend=scene.sim.backend, appearance=scene.sim.appearance, followed=followed)
            )
            undo.callback(viewer.close)
        trainer = Trainer(
            policy=policy,
            env=env,
            algorithm=algorithm,
            buffer_size=cfg.buffer_size,
            eval_freq=cfg.eval_freq,
            save_freq=cfg.save_freq,
            checkpoint_dir=folder / "checkpoints",
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
        provide(algorithm, run, env, folder, resume is not None)
        if resume is not None:
            with placed(f"{resume.checkpoint}: "):
                trainer.load_state_dict(resume.content)
            trainer.saver.last = resume.checkpoint
        if process_group.is_main:
            begin_writing(run, folder, env, trainer, log, resume)
        undo.pop_all()
    return trainer


def check_built_policy(run: RunConfig, env: TaskEnv, policy: Policy, device: torch.device) -> None:
    """Check that a policy fits its environment and the rollouts' length, and that the memory suffices to train it.

    Another library's image that no network reads is a warning.
    """
    algo_class, space = get_algo_class(run.algorithm_name), env.single_observation_space
    if algo_class.learns_from != "demonstrations":
        raise_problems(chunk_problems(run.trainer.buffer_size, policy.chunk_length))
    check_policy(
        policy,
        env.flattened_observation_space,
        env.single_action_space,
        device,
        observation_space=space,
        evaluated=algo_class.reads_evaluated,
    )
    if scene_cfg(run.env) is None:  # ours have cameras for other purposes, too
        for name, box in entry_spaces(space).items():
            if len(box.shape) == IMAGE_DIMS and name not in policy.obs_keys:
                logger.log_warning(
                    f"no network reads the image '{name}': one of the type 'cnn' does, with it in its 'keys'"
                )
    trained = [values for values in policy.parameters() if values.requires_grad]
    what = f"gradients and the saved copy of the policy's {sum(values.numel() for values in trained):,} parameters"
    check_memory("policy", what, 2 * sum(values.nbytes for values in trained), device)


def check_rollouts(run: RunConfig, env: TaskEnv, algorithm: BaseAlgorithm) -> None:
    """Check that the rollouts for an algorithm fit the memory of its device, and its policy's sequences fit them."""
    if algorithm.learns_from == "demonstrations":
        return
    policy, num_steps = algorithm.policy, run.trainer.buffer_size
    num_decisions = num_steps // policy.chunk_length
    rollout = allocate_for(
        policy,
        env.num_envs,
        num_decisions,
        space_size(env.flattened_observation_space),
        space_size(env.single_action_space),
        "meta",  # of which nothing is allocated
        zero_entries(env.single_observation_space, policy.obs_keys, 0),
        has_final=algorithm.reads_final_obs,
    )
    what = f"the {num_steps:,} steps of a rollout in {env.num_envs:,} environments"
    check_memory("trainer.buffer_size", what, rollout.bytes(), algorithm.device)
    if algorithm.learns_from == "rollouts":
        check_sequences(policy, num_decisions, algorithm.batch_size)


def init_policy(policy: Policy, cfg: PolicyBlock, env_config: Mapping[str, Any]) -> None:
    """Load the parameters and input statistics of the run that ``init_from`` of the block names, if any.

    A built-in policy without a critic skips the critic's. Rank 0 reads. Observations or actions that differ by the
    environments' configs are a warning.
    """
    target: str | None = setting_of(cfg, "init_from")
    if target is None:
        return
    with placed(_PLACE):
        path, saved, config = _read_policy(target)
    has_critic, theirs = hasattr(cfg, "critic"), any(name.startswith(_CRITICS) for name in saved)
    is_users = isinstance(cfg, UserPolicyCfg)  # all parameters are the run's
    if not (is_users or has_critic):
        saved = {name: value for name, value in saved.items() if not name.startswith(_CRITICS)}
    elif not (is_users or theirs):
        logger.log_info(
            f"{_PLACE}{path}: has no critic: it begins at random (algorithm.cfg.critic_warmup trains it first)"
        )
        saved |= {name: value for name, value in policy.state_dict().items() if name.startswith(_CRITICS)}
    load_policy_state(policy, saved, _PLACE + path)
    their_cfg = _as_cfg(config.get("policy", {}), _PLACE + path)
    before, now = (_meaning(each, has_critic and theirs) for each in (their_cfg, cfg))
    lines = [f"{key} {before[key]!r} there, {now[key]!r} here" for key in now if before.get(key, now[key]) != now[key]]
    if lines:
        raise ConfigError(f"{_PLACE}{path}: its policy uses the same parameters in another way: {'; '.join(lines)}")
    if "log_std" in saved and (std := getattr(cfg, "init_log_std", None)) != getattr(their_cfg, "init_log_std", std):
        logger.log_warning(f"policy.init_log_std: {std} has no effect: {path} has a std")
    there, here = (_interface(each) for each in (config.get("gym_config", {}), env_config))
    for name in [name for name in here if there[name] != here[name]]:
        logger.log_warning(f"{_PLACE}{path}: was trained with {name} {there[name]}, and here it is {here[name]}")


def load_teacher(run: RunConfig, env: TaskEnv) -> Teacher:
    """Load the policy of the run that ``policy.teacher`` names, to act on the observations of this environment.

    Its own environment is built for a moment, since that determines its input: each entry is read from the entry of the
    same name in the group ``teacher``, or of a name that ends in it (``clean/joints/pos`` for ``joints/pos``). Entries
    that only its critic reads may be missing. Rank 0 reads.
    """
    with placed("policy.teacher: "), logger.without_repeats():
        path, saved, config = _read_policy(setting_of(run.policy, "teacher"))
        alone = SavedRun(Path(), Path(path), {"policy": saved, "config": config})
        allowed = [*run.trainer.import_modules, *imports_allowed_by_environment()]
        with open_run(alone, 1, run.trainer.device, allowed, ["trainer.sim_device=cpu"]) as opened:
            policy, space, observed = opened.policy, opened.env.single_action_space, opened.env.single_observation_space
            entries = entry_columns(observed)
            read = group_entries(setting_of(opened.config.policy, "obs_groups") or {}, "actor", observed)
        there, here = (_interface(x)["env.actions"] for x in (config["gym_config"], run.resolved["gym_config"]))
        if there != here:
            raise ConfigError(f"{path}: its actions are env.actions {there}, and here {here}")
        if space != env.single_action_space:
            raise ConfigError(f"{path}: its actions are {space}, and here {env.single_action_space}")
    group = group_entries(setting_of(run.policy, "obs_groups") or {}, "teacher", env.single_observation_space)
    columns: list[int] = []
    for name, own_columns in entries.items():
        size = own_columns.stop - own_columns.start
        if name not in read:
            columns += [-1] * size
            continue
        alike = [name] if name in group else [key for key in group if key.endswith(f"/{name}")]
        found = group[alike[0]] if len(alike) == 1 else slice(0)
        if size != found.stop - (found.start or 0):
            sizes = ", ".join(f"{key} [{x.stop - x.start}]" for key, x in group.items())
            raise ConfigError(f"policy.obs_groups.teacher: the teacher reads '{name}' [{size}]; there are {sizes}")
        columns += range(found.start, found.stop)
    with placed(f"policy.teacher: {path}: "):
        return Teacher(policy, torch.tensor(columns))


def _read_policy(target: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return a run's checkpoint path, its policy's state and its config; rank 0 reads them."""

    def read() -> tuple[str, dict[str, Any], dict[str, Any]]:
        run = find_run(target)
        return str(run.checkpoint), run.content["policy"], run.content["config"]

    return get_process_group().run_on_main(read)


def _interface(env_config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides the meaning of a policy's inputs and outputs in an environment's config, by its place."""
    env = env_config.get("env", {})
    terms = [(key, term) for key, term in env.get("observations", {}).items() if term.get("mode") != "modify"]
    entries = {term.get("name") or key: term["func"] for key, term in terms}
    foreign = None if "env" in env_config else env_config.get("id")
    return {"env.observations": entries, "env.actions": env.get("actions"), "the environment": foreign}


def _as_cfg(block: Mapping[str, Any], place: str) -> PolicyBlock | None:
    """Return a built-in policy's block; None for any other."""
    if block.get("name") not in get_registered_policy_names():
        return None
    typed = typed_policy(block["name"])
    return None if typed is None else from_dict(typed.cfg_class, dict(block), place)


def _meaning(cfg: PolicyBlock | None, has_critic: bool) -> dict[str, Any]:
    """Return a block's entries of ``_MEANING`` by their paths, without the critic's if it has none."""
    if cfg is None:
        return {}
    names = (*_MEANING, *_OF_DENSITY) if isinstance(cfg, SoftActorCriticCfg) else _MEANING
    leaves = leaves_by_path({name: value for name, value in dataclasses.asdict(cfg).items() if name in names})
    # A script's policy has null for a setting that is off.
    return {
        path: False if value is None else value
        for path, value in leaves.items()
        if (has_critic or "critic" not in path.split(".")) and path.rpartition(".")[2] not in _OF_START
    }
