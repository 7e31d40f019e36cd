"""A run's training and environment configs, parsed and checked together. Nothing is built here."""

import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks that configs name)
from embodichain.agents.rl.algo import BaseAlgorithm, BaseAlgorithmCfg
from embodichain.agents.rl.algo.registry import algorithm_data, get_algo_class
from embodichain.agents.rl.buffer import EXPERT
from embodichain.agents.rl.config.named import find_named_file
from embodichain.agents.rl.config.overrides import apply_overrides, split_overrides
from embodichain.agents.rl.config.trainer_cfg import EventsCfg, TrainCfg, TrainerCfg, is_env_config
from embodichain.agents.rl.metrics.sinks import FoundLogger, find_loggers
from embodichain.agents.rl.models import PolicyCfg
from embodichain.agents.rl.models.registry import (
    PolicyBlock,
    chunk_length_of,
    get_policy_class,
    parse_policy_block,
    policy_data,
)
from embodichain.agents.rl.task_env import choose_sim_device, scene_problems
from embodichain.agents.rl.train_source import TrainSource, read_source
from embodichain.lab.gym.config.env_config import TOP_KEYS, ParsedEnv, converted, parse_env, terms_to_cfg
from embodichain.lab.gym.env_sources import ParsedTask, TaskCfg, env_sources, find_source
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.cfg import EventCfg
from embodichain.lab.gym.envs.managers.checks import SceneNames
from embodichain.lab.gym.registry import get_env_spec, get_registered_env_ids
from embodichain.utils import MISSING, ConfigError, collected, logger, placed, raise_problems, replace, to_dict
from embodichain.utils.device import resolve_device
from embodichain.utils.module_utils import import_allowed_modules
from embodichain.utils.utility import as_json, check_plain, load_config_file
from embodichain.utils.validation import parse


@dataclass(frozen=True)
class RunConfig:
    """The whole config of a run, parsed and checked.

    Attributes:
        trainer: trainer's config; its ``gym_config`` is the path of the environment's config, or ``{}``.
        algorithm_name, env_id: registered names.
        algorithm: an instance of the algorithm's ``cfg_class``; a user's own class may lack all but ``device``.
        env, eval_env: the environment's config for training, and for evaluation if enabled.
        loggers: trainer's loggers.
        resolved: the same as plain data, with every default; it loads as an equal ``RunConfig``.
    """

    trainer: TrainerCfg
    policy: PolicyBlock
    algorithm_name: str
    algorithm: BaseAlgorithmCfg
    env_id: str
    env: TaskCfg
    eval_env: TaskCfg | None
    loggers: list[FoundLogger]
    resolved: dict[str, Any]


def load_run_config(
    source: TrainSource, overrides: Sequence[str] = (), allowed_imports: Sequence[str] = ()
) -> RunConfig:
    """Read and check a training config and the environment config that it names; nothing is built.

    Args:
        source: a training config as ``find_config`` takes it, or a run's ``config.json``; such a file's content;
            or typed.
        overrides: ``trainer.num_envs=256``, ``env.rewards.reach.weight=2`` and the like: dotted paths in the training
            config or the environment's, in the present layout.
        allowed_imports: prefixes of the modules that the config may name, in ``trainer.import_modules`` and in dotted
            paths of functors and policies.

    Raises:
        ConfigError: all errors found, a line each.
    """
    data, name, folder = read_source(source)
    if is_env_config(data):
        raise ConfigError(f"{name}: is an environment's config; needed is the training config that names it")
    return _load(converted(data, "training"), folder, overrides, allowed_imports)


def load_checkpoint_config(
    config: dict[str, Any], overrides: Sequence[str] = (), allowed_imports: Sequence[str] = ()
) -> RunConfig:
    """Check the config in a checkpoint (``RunConfig.resolved``), as :func:`load_run_config` does that of a file."""
    with placed("the checkpoint's config: "):
        check_plain(config)
    return _load(json.loads(json.dumps(config)), Path(), overrides, allowed_imports)


def chunk_problems(buffer_size: int, length: int) -> list[str]:
    """Return the error of rollouts of ``buffer_size`` steps that chunks of ``length`` actions do not divide."""
    if buffer_size % length == 0:
        return []
    below = buffer_size // length * length
    near = " or ".join(str(multiple) for multiple in (below, below + length) if multiple)
    return [
        f"trainer.buffer_size: {buffer_size} steps cannot be divided into chunks of {length} actions "
        f"(policy.chunk_length); the nearest multiple is {near}"
    ]


def _load(data: dict[str, Any], folder: Path, overrides: Sequence[str], allowed_imports: Sequence[str]) -> RunConfig:
    """Parse and check both configs; ``folder`` is searched for ``gym_config``, and ``data`` is changed.

    Each part is parsed without its wrong values, so that an error in one place hides none in another.
    """
    own, of_env = split_overrides(overrides, {*TOP_KEYS, *(key for source in env_sources() for key in source.keys)})
    problems: list[str] = []
    apply_overrides(data, own, problems)
    record = data.pop("gym_config", None)  # of a run, unless an override names another one
    if any(override.startswith("trainer.gym_config=") for override in own):
        record = None
    train, wrong = parse(TrainCfg, {key: value for key, value in data.items() if key != "$schema"}, "")
    trainer = train.trainer if train is not None and _is_there(train.trainer) else TrainerCfg()  # type: ignore[call-arg]
    import_allowed_modules(trainer.import_modules, allowed_imports, "trainer.import_modules", folder)
    problems += trainer.problems()
    policy: PolicyBlock | None = None
    algorithm: Any = None
    algo_class: type[BaseAlgorithm] | None = None
    if train is not None and "policy" not in wrong and _is_there(train.policy):
        with collected(problems):
            policy = parse_policy_block(train.policy, allowed_imports)
    if train is not None and _is_there(train.algorithm) and not {"algorithm", "algorithm.name"} & wrong.keys():
        with collected(problems, "algorithm.name: "):
            algo_class = get_algo_class(train.algorithm.name)
            algorithm, more = parse(algo_class.cfg_class, train.algorithm.cfg, "algorithm.cfg")
            wrong |= more
    env: ParsedEnv | ParsedTask | None = None
    if record is not None or (_is_there(trainer.gym_config) and not {"trainer", "trainer.gym_config"} & wrong.keys()):
        with collected(problems):
            env = _parse_env(record, trainer, folder, of_env, allowed_imports, problems)
    names = SceneNames() if env is None else env.names
    find = partial(terms_to_cfg, cls=EventCfg, names=names, problems=problems, allowed_imports=allowed_imports)
    loggers = find_loggers(trainer.loggers, allowed_imports, problems)
    events = {kind: find(terms, place=f"trainer.events.{kind}") for kind, terms in vars(trainer.events).items()}
    inside = {f.name: f"algorithm.cfg.{f.name}" for f in ([] if algorithm is None else dataclasses.fields(algorithm))}
    inside |= {f.name: f"trainer.{f.name}" for f in dataclasses.fields(TrainerCfg)}
    wrong |= {path: f"unknown key. Did you mean '{inside[path]}'?" for path in wrong if path in inside}
    problems += [f"{path}: {problem}" for path, problem in wrong.items()]
    if train is not None and algo_class is not None and policy is not None and env is not None:
        problems += _pair_problems(train.algorithm.name, algorithm, trainer, policy, env, wrong)
    raise_problems(problems)
    assert train is not None
    assert policy is not None
    assert env is not None
    source = find_source(env.env_id)
    if isinstance(policy, PolicyCfg) and policy.scale_actions is None:
        policy = replace(policy, scale_actions=source is not None and not policy.squash)
    if getattr(algorithm, "normalize_returns", False) is None:
        algorithm = replace(algorithm, normalize_returns=source is not None)
    path = trainer.gym_config if isinstance(trainer.gym_config, str) else {}
    if path and record is None:  # from the working directory, for messages of a resume
        path = str(find_named_file(str(path), folder, "trainer.gym_config"))
    train.trainer = replace(trainer, gym_config=path, events=_as_written(events, trainer.events))
    return _assemble(train, policy, algorithm, env, events, loggers)


def _is_there(value: Any) -> bool:
    """Return whether a value was read: one that is wrong may be missing."""
    return value is not MISSING


def _assemble(
    train: TrainCfg,
    policy: PolicyBlock,
    algorithm: Any,
    env: ParsedEnv | ParsedTask,
    events: Mapping[str, dict[str, EventCfg]],
    loggers: list[FoundLogger],
) -> RunConfig:
    """Return the run's config of its checked parts."""
    trainer, device = train.trainer, str(resolve_device(train.trainer.device))
    algorithm = replace(algorithm, device=device)
    cfg = env.cfg.for_run(
        trainer.seed,
        trainer.num_envs or env.cfg.num_envs,
        headless=trainer.headless,
        enable_rt=trainer.enable_rt,
        render_device=device,
        gpu_id=trainer.gpu_id,
    )
    if isinstance(algorithm, BaseAlgorithmCfg):
        rollout_steps = trainer.buffer_size * cfg.num_envs // chunk_length_of(policy)
        for line in algorithm.notices(rollout_steps, trainer.iterations * rollout_steps):
            logger.log_warning(line)
        collection = trainer.collection()
        if collection is not None and collection.env_groups > 1 and getattr(algorithm, "n_steps", 1) > 1:
            logger.log_warning(
                f"algorithm.cfg.n_steps: with {collection.env_groups} trainer.asynchronous.env_groups, whose rollouts "
                f"alternate, returns also end where a rollout does, after {trainer.buffer_size} steps"
            )
    record = {
        "trainer": to_dict(trainer),
        "policy": policy_data(policy),
        "algorithm": algorithm_data(train.algorithm.name, algorithm),
        "gym_config": env.data(),
    }
    return RunConfig(
        trainer=trainer,
        policy=policy,
        algorithm_name=train.algorithm.name,
        algorithm=algorithm,
        env_id=str(env.env_id),
        env=cfg.for_training(events["train"], getattr(algorithm, "group_size", 1)),
        eval_env=cfg.for_evaluation(events["eval"], trainer.num_eval_envs) if trainer.enable_eval else None,
        loggers=loggers,
        resolved=as_json(record, "the config"),
    )


def _as_written(events: Mapping[str, dict[str, EventCfg]], written: EventsCfg) -> EventsCfg:
    """Return events with every default, and their functions by the names that the file has for them."""
    blocks = {
        kind: {name: to_dict(term) | {"func": vars(written)[kind][name]["func"]} for name, term in terms.items()}
        for kind, terms in events.items()
    }
    return EventsCfg(**blocks)


def _parse_env(
    record: dict[str, Any] | None,
    trainer: TrainerCfg,
    folder: Path,
    overrides: Sequence[str],
    allowed_imports: Sequence[str],
    problems: list[str],
) -> ParsedEnv | ParsedTask:
    """Return the environment's typed config without its wrong values; their errors are added to ``problems``.

    Args:
        record: the content that a run has saved; None: it is in, or named by, ``trainer.gym_config``.
    """
    data, place = record or trainer.gym_config, "trainer.gym_config."
    if isinstance(data, str):
        path = find_named_file(data, folder, "trainer.gym_config")
        data, place, folder = load_config_file(path), f"{path}: ", path.parent
    wrong: list[str] = []
    with collected(problems, place):
        if find_source(data.get("id")) is None:
            data = converted(data, "environment")  # before the overrides, which have our paths
    apply_overrides(data, overrides, problems)
    env: ParsedEnv | ParsedTask
    if (source := find_source(data.get("id"))) is not None:  # an override may have changed it
        env = source.parse(data, allowed_imports)
    else:
        is_known = _check_id(data, wrong)
        # The rest of an unknown task's config is checked as a plain environment's.
        env_class = None if is_known else EmbodiedEnv
        env = parse_env(data, env_class=env_class, allowed_imports=allowed_imports, folder=folder)
    wrong += env.problems
    if trainer.enable_eval and env.time_limit is None and not wrong:
        wrong.append("max_episode_steps: evaluation needs a time limit, and neither config nor task gives one")
    problems += [place + line for line in wrong]
    if isinstance(env, ParsedEnv):
        sim_cfg = replace(env.cfg.sim_cfg, sim_device=choose_sim_device(trainer, env.cfg, problems))
        env = dataclasses.replace(env, cfg=replace(env.cfg, sim_cfg=sim_cfg))
    return env


def _check_id(data: Mapping[str, Any], problems: list[str]) -> bool:
    """Return whether a config names a registered task; if not, a line is added to ``problems``."""
    with collected(problems, "id: "):
        if not isinstance(data.get("id"), str):
            known = ", ".join(get_registered_env_ids())
            raise ConfigError(f"the name of an environment is needed, got {data.get('id')!r}. Known: {known}")
        for source in env_sources():
            if (whole := source.suggested_id(data["id"])) is not None:
                raise ConfigError(f"'{data['id']}' is another library's: write '{whole}'")
        get_env_spec(data["id"])
        return True
    return False


def _pair_problems(
    algorithm_name: str,
    algorithm: Any,
    trainer: TrainerCfg,
    policy: PolicyBlock,
    env: ParsedEnv | ParsedTask,
    wrong: Collection[str],
) -> list[str]:
    """Return the errors of parts that do not fit each other, a line each; those about ``wrong`` keys are left out."""
    found: list[str] = []
    algo_class = get_algo_class(algorithm_name)
    with collected(found, f"policy.name: '{policy.name}' with algorithm.name '{algorithm_name}': "):
        algo_class.check_policy_class(get_policy_class(policy.name))
    if algo_class.learns_from != "demonstrations":
        found += chunk_problems(trainer.buffer_size, chunk_length_of(policy))
        if isinstance(algorithm, BaseAlgorithmCfg) and "trainer.num_envs" not in wrong:
            found += algorithm.problems(trainer.num_envs or env.cfg.num_envs)
    if (source := find_source(env.env_id)) is not None:
        found += scene_problems(trainer, algorithm, env.cfg)
        found += source.problems_beside_updates(env.cfg) if trainer.collection() is not None else []
    elif getattr(algorithm, "demonstrations", None) == EXPERT:
        classes = {env_id: get_env_spec(env_id).cls for env_id in get_registered_env_ids()}
        having = [env_id for env_id, cls in classes.items() if hasattr(cls, "expert_action")]
        if env.env_id in classes and env.env_id not in having:
            found.append(
                f"algorithm.cfg.demonstrations: '{EXPERT}': {env.env_id} has no scripted expert (a method "
                f"expert_action). With one: {', '.join(having)}; or name a dataset's folder"
            )
    return [line for line in found if line.partition(":")[0] not in wrong]
