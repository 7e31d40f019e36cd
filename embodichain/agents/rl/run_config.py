"""A run's training and environment configs, parsed and checked together. Nothing is built here."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks that configs name)
from embodichain.agents.rl.algo import BaseAlgorithm, BaseAlgorithmCfg
from embodichain.agents.rl.algo.registry import algorithm_data, get_algo_class
from embodichain.agents.rl.buffer import EXPERT
from embodichain.agents.rl.config.named import find_named_file
from embodichain.agents.rl.config.overrides import (
    apply_overrides,
    as_typed,
    name_overrides,
    split_overrides,
    without_unknown_terms,
)
from embodichain.agents.rl.config.trainer_cfg import EventsCfg, TrainCfg, TrainerCfg, is_env_config
from embodichain.agents.rl.metrics.loggers import FoundLogger, find_loggers
from embodichain.agents.rl.models import PolicyCfg
from embodichain.agents.rl.models.registry import (
    PolicyBlock,
    chunk_length_of,
    get_policy_class,
    parse_policy_block,
    policy_data,
)
from embodichain.agents.rl.sim_device import choose_sim_device
from embodichain.agents.rl.task_env import scene_problems
from embodichain.agents.rl.train_source import TrainSource, read_source
from embodichain.lab.gym.config.converters import Converted, InlineEnv, Unchanged, convert_environment, converter
from embodichain.lab.gym.config.env_config import TERM_BLOCKS, TOP_KEYS, ParsedEnv, parse_env, terms_to_cfg
from embodichain.lab.gym.env_sources import ParsedTask, TaskCfg, env_sources, find_source
from embodichain.lab.gym.envs import EmbodiedEnv
from embodichain.lab.gym.envs.managers.cfg import EventCfg
from embodichain.lab.gym.envs.managers.scene_names import SceneNames
from embodichain.lab.gym.registry import get_env_spec, get_registered_env_ids
from embodichain.utils import ConfigError, logger
from embodichain.utils.configclass import replace, to_dict
from embodichain.utils.device import resolve_device
from embodichain.utils.errors import closest, collected, placed, raise_problems
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
            config or the environment's.
        allowed_imports: prefixes of the modules that the config may name, in ``trainer.import_modules`` and in dotted
            paths of functors and policies.

    Raises:
        ConfigError: all errors found, a line each.
    """
    data, name, folder = read_source(source)
    with placed(f"{name}: "):
        if (found := converter()) is not None:
            found.refuse_other_products(data)
    if is_env_config(data):
        raise ConfigError(f"{name}: is an environment's config; needed is the training config that names it")
    return _load(data, folder, overrides, allowed_imports)


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


@dataclass
class _EnvFile:
    """An environment's config before it is parsed.

    Attributes:
        path: path of its file; ``{}``: it has none.
        place: prefix of the paths in messages.
        folder: folder of its model files, too.
        inline: config's parts in the user's file, if it is in an older layout's ``env``.
        converted: the paths of another layout, if it was converted.
    """

    data: dict[str, Any]
    path: Any = field(default_factory=dict)
    place: str = "trainer.gym_config."
    folder: Path = Path()
    inline: InlineEnv | None = None
    converted: Converted | None = None

    def in_users_words(self, lines: Sequence[str]) -> list[str]:
        """Return lines about the data with the paths of the user's file."""
        lines = list(lines) if self.converted is None else self.converted.in_users_words(lines)
        return [self.place + line for line in lines] if self.inline is None else self.inline.in_users_words(lines)


def _load(data: dict[str, Any], folder: Path, overrides: Sequence[str], allowed_imports: Sequence[str]) -> RunConfig:
    """Parse and check both configs; ``folder`` is searched for ``gym_config``, and ``data`` is changed.

    Each part is parsed without its wrong values, so that an error in one place hides none in another.
    """
    own, env_overrides = split_overrides(
        overrides, {*TOP_KEYS, *(key for source in env_sources() for key in source.keys)}
    )
    problems: list[str] = []
    record = data.pop("gym_config") if isinstance(data.get("gym_config"), dict) else None
    converted = _convert(data, problems, own)
    data = converted.data
    file = _take_env(data, record, own, problems)
    train, wrong = parse(TrainCfg, {key: value for key, value in data.items() if key != "$schema"}, "")
    trainer = TrainerCfg() if train is None or "trainer" in wrong else train.trainer  # type: ignore[call-arg]
    import_allowed_modules(trainer.import_modules, allowed_imports, "trainer.import_modules", folder)
    problems += trainer.problems()
    policy: PolicyBlock | None = None
    algorithm: Any = None
    algo_class: type[BaseAlgorithm] | None = None
    env: ParsedEnv | ParsedTask | None = None
    if train is not None and "policy" not in wrong:
        with collected(problems):
            policy = parse_policy_block(train.policy, allowed_imports)
    if train is not None and not {"algorithm", "algorithm.name"} & wrong.keys():
        with collected(problems, "algorithm.name: "):
            algo_class = get_algo_class(train.algorithm.name)
            algorithm, more = parse(algo_class.cfg_class, train.algorithm.cfg, "algorithm.cfg")
            wrong |= more
            if policy is not None:
                problems += _pair_problems(train.algorithm.name, policy)
    if file is None and not {"trainer", "trainer.gym_config"} & wrong.keys():
        with collected(problems):
            file = _read_env(trainer, folder)
    if file is not None:
        env = _parse_env(file, trainer, env_overrides, allowed_imports, problems)
    source = None if file is None else find_source(file.data.get("id"))
    is_foreign = source is not None
    if source is not None and env is not None:
        problems += scene_problems(trainer, algorithm, env.cfg)
        problems += source.problems_beside_updates(env.cfg) if trainer.collection() is not None else []
    if isinstance(policy, PolicyCfg) and policy.scale_actions is None:
        policy = replace(policy, scale_actions=is_foreign and not policy.squash)
    if getattr(algorithm, "normalize_returns", False) is None:
        algorithm = replace(algorithm, normalize_returns=is_foreign)
    names = SceneNames(None, None) if env is None else env.names
    find = partial(terms_to_cfg, cls=EventCfg, names=names, problems=problems, allowed_imports=allowed_imports)
    loggers = find_loggers(trainer.loggers, allowed_imports, problems)
    events = {kind: find(terms, place=f"trainer.events.{kind}") for kind, terms in vars(trainer.events).items()}
    wrong |= _misplaced(wrong, own, algorithm)
    problems += [f"{path}: {problem}" for path, problem in wrong.items()]
    if algo_class is None or algo_class.learns_from != "demonstrations":
        problems += _size_problems(algorithm, trainer, policy, env, wrong)
    problems += _expert_problems(algorithm, file)
    problems = name_overrides(converted.in_users_words(problems), own)
    raise_problems(as_typed(problems, overrides))
    assert train is not None
    assert policy is not None
    assert file is not None
    assert env is not None
    train.trainer = replace(trainer, gym_config=file.path, events=_as_written(events, trainer.events))
    return _assemble(train, policy, algorithm, file.data["id"], env, events, loggers)


def _convert(data: dict[str, Any], problems: list[str], overrides: Sequence[str]) -> Converted:
    """Return a training config in the present layout, with its overrides."""
    if (found := converter()) is not None:
        return found.convert_training(data, problems, overrides)
    data = copy.deepcopy(data)
    apply_overrides(data, overrides, problems)
    return Unchanged(data)


def _assemble(
    train: TrainCfg,
    policy: PolicyBlock,
    algorithm: Any,
    env_id: str,
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
        env_id=env_id,
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


def _take_env(data: dict[str, Any], record: Any, overrides: Sequence[str], problems: list[str]) -> _EnvFile | None:
    """Return the environment's config if it is not in ``trainer.gym_config``.

    It is ``record``, an object, in the record of a run, and in ``env`` in an older layout; an override may name another
    one.
    """
    old = data.pop("env", None)
    is_named = any(override.startswith("trainer.gym_config=") for override in overrides)
    if is_named or (record is None and old is None):
        return None
    trainer = data.get("trainer")
    path = trainer.setdefault("gym_config", {}) if isinstance(trainer, dict) else {}
    if record is not None:
        return _EnvFile(record, path if isinstance(path, str) else {})
    found = converter()
    if found is None:
        problems.append("env: unknown key: the environment's config is named by 'trainer.gym_config'")
        return None
    inline = found.read_inline_env(old)
    problems += inline.problems
    return _EnvFile(inline.data, folder=inline.folder, inline=inline)


def _read_env(trainer: TrainerCfg, folder: Path) -> _EnvFile:
    """Return the environment's config in, or named by, ``trainer.gym_config``."""
    name = trainer.gym_config
    if isinstance(name, dict):
        return _EnvFile(name, folder=folder)
    path = find_named_file(name, folder, "trainer.gym_config")
    data = {key: value for key, value in load_config_file(path).items() if key != "$schema"}
    return _EnvFile(data, str(path), f"{path}: ", path.parent)


def _parse_env(
    file: _EnvFile,
    trainer: TrainerCfg,
    overrides: Sequence[str],
    allowed_imports: Sequence[str],
    problems: list[str],
) -> ParsedEnv | ParsedTask:
    """Return the environment's typed config without its wrong values; their errors are added to ``problems``."""
    wrong: list[str] = []
    source = find_source(file.data.get("id"))
    if source is None:
        with placed(file.place):
            file.converted = convert_environment(file.data, wrong)  # before the overrides, which have our paths
        file.data = file.converted.data
    data = file.data
    apply_overrides(data, without_unknown_terms(data, overrides, TERM_BLOCKS, problems), problems)
    env: ParsedEnv | ParsedTask
    source = find_source(data.get("id"))  # an override may have changed it
    if source is not None:
        env, is_known = source.parse(data, allowed_imports), True
    else:
        is_known = _check_id(data, wrong)
        # The rest of an unknown task's config is checked as a plain environment's.
        env = parse_env(
            data, env_class=None if is_known else EmbodiedEnv, allowed_imports=allowed_imports, folder=file.folder
        )
    wrong += env.problems
    is_wrong = _is_wrong(wrong, "max_episode_steps") or _is_wrong(wrong, "id") or not is_known
    if trainer.enable_eval and env.time_limit is None and not is_wrong:
        wrong.append("max_episode_steps: evaluation needs a time limit, and neither config nor task gives one")
    problems += file.in_users_words(name_overrides(wrong, overrides))
    if not isinstance(env, ParsedEnv):
        return env
    sim_device = choose_sim_device(trainer, env.cfg, problems)
    return dataclasses.replace(env, cfg=replace(env.cfg, sim_cfg=replace(env.cfg.sim_cfg, sim_device=sim_device)))


def _pair_problems(algorithm_name: str, policy: PolicyBlock) -> list[str]:
    """Return why an algorithm cannot improve a policy, in a line; an empty list if it can."""
    found: list[str] = []
    with collected(found, f"policy.name: '{policy.name}' with algorithm.name '{algorithm_name}': "):
        get_algo_class(algorithm_name).check_policy_class(get_policy_class(policy.name))
    return found


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


def _misplaced(wrong: Mapping[str, str], overrides: Sequence[str], algorithm: Any) -> dict[str, str]:
    """Return the problems of unknown keys at the top of a training config that stand, or nearly, further inside.

    In an override, keys of the environment's config stand at the top.
    """
    blocks = [entry.name for entry in dataclasses.fields(TrainCfg)]
    from_overrides = {override.partition("=")[0].partition(".")[0] for override in overrides}
    settings = [] if algorithm is None else dataclasses.fields(algorithm)
    inside = {entry.name: f"algorithm.cfg.{entry.name}" for entry in settings}
    inside |= {entry.name: f"trainer.{entry.name}" for entry in dataclasses.fields(TrainerCfg)}
    found = {}
    for key in [path for path in wrong if "." not in path and path not in blocks]:
        place = "" if key in from_overrides else "trainer.gym_config."
        paths = {name: place + name for name in TOP_KEYS} | inside | {name: name for name in blocks}
        if (name := closest(key, paths)) is not None:
            found[key] = f"unknown key. Did you mean '{paths[name]}'? Known: {', '.join(blocks)}"
    return found


def _size_problems(
    algorithm: Any,
    trainer: TrainerCfg,
    policy: PolicyBlock | None,
    env: ParsedEnv | ParsedTask | None,
    wrong: Collection[str],
) -> list[str]:
    """Return the errors of the rollouts' size with the algorithm and the policy, without ``wrong`` keys."""
    num_envs = trainer.num_envs
    if num_envs is None and env is not None and not _is_wrong(env.problems, "num_envs"):
        num_envs = env.cfg.num_envs
    if num_envs is None or {"trainer", "trainer.num_envs", "trainer.buffer_size", "algorithm.cfg"} & set(wrong):
        return []
    problems = [] if None in (policy, algorithm) else chunk_problems(trainer.buffer_size, chunk_length_of(policy))
    if isinstance(algorithm, BaseAlgorithmCfg):
        problems += algorithm.problems(num_envs)
    return [line for line in problems if line.partition(":")[0] not in wrong]


def _expert_problems(algorithm: Any, file: _EnvFile | None) -> list[str]:
    """Return the error of demonstrations by an expert that the task does not have."""
    if getattr(algorithm, "demonstrations", None) != EXPERT or file is None:
        return []
    classes = {env_id: get_env_spec(env_id).cls for env_id in get_registered_env_ids()}
    env_id = file.data.get("id")
    if env_id not in classes or hasattr(classes[env_id], "expert_action"):
        return []
    having = ", ".join(name for name, cls in classes.items() if hasattr(cls, "expert_action"))
    return [
        f"algorithm.cfg.demonstrations: '{EXPERT}': {env_id} has no scripted expert (a method expert_action). With "
        f"one: {having}; or name a dataset's folder"
    ]


def _is_wrong(problems: Sequence[str], key: str) -> bool:
    """Return whether there is a line about a key of an environment's config, at its top or in ``env``."""
    return any(line.startswith((f"{key}:", f"env.{key}:")) for line in problems)
