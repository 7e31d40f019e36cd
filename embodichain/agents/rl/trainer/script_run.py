"""The run of a ``Trainer`` that a script has built: description of its parts, logs and videos."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embodichain.agents.rl.algo import BaseAlgorithm
from embodichain.agents.rl.algo.registry import algorithm_data, find_algo_name
from embodichain.agents.rl.checkpoint.saved_run import PROBLEM_KEY, RunLock
from embodichain.agents.rl.config.trainer_cfg import TrainerCfg
from embodichain.agents.rl.distributed import get_process_group
from embodichain.agents.rl.metrics import sinks
from embodichain.agents.rl.models import Policy, check_policy
from embodichain.utils import ConfigError, from_dict, logger, placed, raise_problems, to_dict, write_json
from embodichain.utils.module_utils import imports_allowed_by_environment
from embodichain.utils.utility import as_json


@dataclass(frozen=True)
class ScriptParts:
    """The parts of a script's ``Trainer``; the event configs are added to the environments, by name."""

    policy: Policy
    algorithm: BaseAlgorithm
    env: Any  # a ``VecEnv``
    eval_env: Any
    event_cfg: Mapping[str, Any]
    eval_event_cfg: Mapping[str, Any]


class ScriptRun:
    """The run of a ``Trainer`` that a script has built: writes the same files as the command.

    Creating it adds the events to the environments; nothing is written.

    Args:
        given: the trainer's arguments that replace values of ``cfg``.
        writer: gets all scalars, if any; it is not closed.
    """

    def __init__(
        self, folder: Path, parts: ScriptParts, cfg: TrainerCfg, given: Mapping[str, Any], writer: Any
    ) -> None:
        settings = _settings(cfg, parts, given)
        self.cfg = from_dict(TrainerCfg, settings, "Trainer")
        problems: list[str] = []
        self._loggers = sinks.find_loggers(self.cfg.loggers, imports_allowed_by_environment(), problems)
        raise_problems(problems)
        env, algorithm = parts.env, parts.algorithm
        check_policy(
            parts.policy,
            env.flattened_observation_space,
            env.action_space,
            algorithm.device,
            observation_space=getattr(env, "single_observation_space", None),
            evaluated=algorithm.reads_evaluated,
        )
        group_size = getattr(getattr(algorithm, "cfg", None), "group_size", 1)
        if hasattr(env, "number_envs"):
            env.number_envs(get_process_group().rank * settings["num_envs"], group_size)
        elif group_size > 1:
            raise ConfigError(
                f"{type(algorithm).__name__} compares the members of groups of {group_size}, which must begin their "
                f"episodes alike: {type(env).__name__} has no number_envs(first_env_id, group_size)"
            )
        add_events(parts.env, parts.event_cfg, "event_cfg")
        add_events(parts.eval_env, parts.eval_event_cfg, "eval_event_cfg")
        self.config = describe_parts(parts, settings)
        self.cfg.seed = self.config["trainer"]["seed"]
        self._folder = folder
        self._writer = writer
        self._recorded = parts.env if parts.event_cfg and hasattr(parts.env, "start_recording") else None

    @contextmanager
    def training(self, log: sinks.RunLog, iterations: int, step: int) -> Iterator[None]:
        """Write config, logs and recordings of a training in the block.

        Args:
            log: gets the sinks; they are closed at the end.
            step: environment steps before; later lines of a ``metrics.jsonl`` in the folder are deleted.
        """
        self.config["trainer"]["iterations"] = iterations
        if not get_process_group().is_main:
            yield
            return
        metrics = self._folder / "metrics.jsonl"
        with RunLock() as lock:
            lock.take(self._folder)
            wall_time, last_step = sinks.rewind_metrics(metrics, step)
            if PROBLEM_KEY not in self.config:
                write_json(self._folder / "config.json", self.config, indent=2)
            run = sinks.LoggedRun(self._folder.name, self._folder, self.config, last_step if step else None)
            sinks.begin_loggers(log, self.cfg, self._loggers, run)
            if self._writer is not None:
                log.add(sinks.WriterSink(self._writer))
            log.add(sinks.JsonLinesSink(metrics, wall_time))
            if self._recorded is not None:
                self._recorded.start_recording(self._folder / "videos", "train")
            try:
                yield
            finally:
                if self._recorded is not None:
                    self._recorded.stop_recording()
                log.close()


def _settings(cfg: TrainerCfg, parts: ScriptParts, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block ``trainer`` of a script's ``cfg``, arguments and parts."""
    settings = {**to_dict(cfg), **given, "device": str(parts.algorithm.device), "num_envs": parts.env.num_envs}
    if parts.eval_env is not None and given["eval_freq"]:
        return settings | {"enable_eval": True, "num_eval_envs": parts.eval_env.num_envs}
    return settings | {"eval_freq": cfg.eval_freq}


def add_events(env: Any, cfgs: Mapping[str, Any], place: str) -> None:
    """Add a trainer's events, given as the argument ``place``, to its environments, if it has any."""
    if not cfgs:
        return
    if not hasattr(env, "add_events"):
        why = "there is no eval_env" if env is None else f"{type(env).__name__} has no add_events"
        raise ConfigError(f"Trainer({place}=...): {why}")
    with placed(f"Trainer({place}=...): "):
        env.add_events(cfgs)


def check_agreement(
    algorithm: BaseAlgorithm, batch_size: int | None, distributed: bool, rank: int, world_size: int
) -> None:
    """Check the trainer's arguments against algorithm and process group; a ConfigError if the rank or size differs."""
    process_group = get_process_group()
    if distributed and (rank, world_size) != (process_group.rank, process_group.world_size):
        raise ConfigError(
            f"Trainer(distributed=True, rank={rank}, world_size={world_size}): this is rank {process_group.rank} of "
            f"{process_group.world_size}: the processes meet in build_algo(..., distributed=True), or in "
            "join_process_group()"
        )
    if batch_size not in (None, algorithm.batch_size):
        logger.log_warning(
            f"Trainer(batch_size={batch_size}): {type(algorithm).__name__} has its own, {algorithm.batch_size} "
            "(its cfg.batch_size), which counts"
        )


def describe_parts(parts: ScriptParts, trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checkpoints' config: ``trainer``, ``policy``, ``algorithm`` and ``gym_config``.

    If the parts cannot be described, it has ``trainer``, and the reason as ``problem``.
    """
    settings, env, policy, algorithm = dict(trainer), parts.env, parts.policy, parts.algorithm
    name, cfg = find_algo_name(type(algorithm)), getattr(algorithm, "cfg", None)
    try:
        if not hasattr(env, "config_data"):
            raise ConfigError(f"the environment {type(env).__name__} has no config_data()")
        if policy.block is None:
            raise ConfigError(f"the policy {type(policy).__name__} was not built by build_policy")
        if name is None or not isinstance(cfg, algorithm.cfg_class):
            raise ConfigError(f"the algorithm {type(algorithm).__name__} is not registered, or has no config in 'cfg'")
        gym_config = env.config_data()
        settings["seed"] = gym_config.get("env", gym_config).pop("seed")
        settings["events"] = {"train": env.terms_data(parts.event_cfg), "eval": env.terms_data(parts.eval_event_cfg)}
        # Modules of users' classes, without the script itself, which cannot be imported again.
        modules = dict.fromkeys(type(part).__module__ for part in (policy, algorithm, env))
        settings["import_modules"] = [m for m in modules if m.partition(".")[0] not in ("__main__", "embodichain")]
        blocks = {"trainer": settings, "policy": policy.block, "algorithm": algorithm_data(name, cfg)}
        return as_json({**blocks, "gym_config": gym_config}, "its config")
    except ConfigError as error:
        return {"trainer": dict(trainer), PROBLEM_KEY: str(error).partition("\n")[0]}
