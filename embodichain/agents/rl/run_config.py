"""A run's training and environment configs, read, checked together, and compared with the configs of a run to resume.

Nothing is built here.
"""

import dataclasses
import json
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks that configs name)
from embodichain.agents.rl.algo import BaseAlgorithm, BaseAlgorithmCfg
from embodichain.agents.rl.algo.registry import algorithm_data, get_algo_class
from embodichain.agents.rl.buffer import EXPERT
from embodichain.agents.rl.buffer.rollout_buffer import chunk_problems
from embodichain.agents.rl.checkpoint.saved_run import settled
from embodichain.agents.rl.config.arguments import apply_overrides, split_overrides
from embodichain.agents.rl.config.named import ShippedConfig, find_config, find_named_file, names_config
from embodichain.agents.rl.config.trainer_cfg import EventsCfg, TrainCfg, TrainerCfg, is_env_config
from embodichain.agents.rl.metrics.sinks import FoundLogger, find_loggers
from embodichain.agents.rl.models.policy import PolicyBlock, PolicyCfg
from embodichain.agents.rl.models.registry import (
    UserPolicyCfg,
    chunk_length_of,
    get_policy_class,
    parse_policy_block,
    policy_data,
    setting_of,
)
from embodichain.lab.gym.config.env_config import ENV_KEYS, TOP_KEYS, converted, parse_env, terms_to_cfg
from embodichain.lab.gym.env_sources import ParsedTask, TaskCfg, env_sources, find_source
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.env_cfg import TOP_FIELDS
from embodichain.lab.gym.envs.managers.cfg import EventCfg
from embodichain.lab.gym.envs.managers.checks import SceneNames
from embodichain.lab.gym.registry import find_env_spec, get_env_spec, get_registered_env_ids
from embodichain.lab.sim.backend import has_warp, parse_sim_device
from embodichain.utils import ConfigError, collected, install_extra, logger, placed, raise_problems, replace, to_dict
from embodichain.utils.configclass import changeable, parse
from embodichain.utils.device import resolve_device
from embodichain.utils.module_utils import import_allowed_modules
from embodichain.utils.utility import as_json, check_plain, load_config_file

TrainSource = str | Path | Mapping[str, Any] | TrainCfg
"""A training config: the path of its file or folder, or a shipped one's name; such a file's content; or typed."""
OWN_CONFIG = "no shipped config: name yours in trainer.gym_config (docs/gymnasium.md has one of SceneRL)"
"""Advice for a task that no shipped config trains."""
_REPLACED = {
    **dict.fromkeys(("num_envs", "env.num_envs", "env.sim_cfg.num_envs"), "trainer.num_envs"),
    **{f"env.sim_cfg.{name}": f"trainer.{name}" for name in ("headless", "enable_rt", "gpu_id", "sim_device")},
    "env.sim_cfg.render_device": "trainer.device",
    "env.seed": "trainer.seed",
    "env.group_size": "algorithm.cfg.group_size",
    "max_episodes": "trainer.iterations",
}
"""Settings of the environment config, and the ones of the training config that replace them, unless these are null."""
_RECORDERS = ("record_camera_data", "record_camera_data_async")  # events without influence on the training


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """The whole config of a run, parsed and checked."""

    trainer: TrainerCfg  # its ``gym_config`` is the path of the environment's config, or ``{}``
    policy: PolicyBlock
    algorithm_name: str  # a registered one, like ``env_id``
    algorithm: BaseAlgorithmCfg  # instance of the algorithm's ``cfg_class``; a user's may lack all but ``device``
    env_id: str
    env: TaskCfg  # for training
    eval_env: TaskCfg | None  # for evaluation, if enabled
    loggers: list[FoundLogger]
    resolved: dict[str, Any]  # the same as plain data, with every default; it loads as an equal ``RunConfig``


def find_train_config(target: str | Path) -> Path:
    """Return the training config that a user names, as ``find_config``."""
    name = str(target)
    if not Path(name).exists() and not names_config(name):
        if find_source(name) is not None:
            raise ConfigError(
                f"'{name}': no shipped config trains this environment: write it into the trainer.gym_config.id of a "
                "training config (docs/gymnasium.md)"
            )
        if find_env_spec(name) is not None:
            raise ConfigError(f"'{name}': a task with {OWN_CONFIG}")
    return find_config(target)


def train_command(configs: Sequence[ShippedConfig]) -> str | None:
    """Return the command that trains a task, of which there are these shipped configs; None: there are none."""
    if not configs:
        return None
    cloning = f"embodichain bc {configs[0].name} && " if configs[0].starts_from_clone else ""
    return f"{cloning}embodichain train {configs[0].name}"


def read_source(source: TrainSource) -> tuple[dict[str, Any], str, Path]:
    """Return a training config's plain data, its name in messages, and the folder that its paths may be relative to."""
    if isinstance(source, (str, Path)):
        path = find_train_config(source)
        return load_config_file(path), str(path), path.parent
    if not isinstance(source, Mapping | TrainCfg):
        raise ConfigError(
            f"the config: must be a file's path or its content, a dictionary or a TrainCfg, got {source!r}"
        )
    data = to_dict(source) if isinstance(source, TrainCfg) else dict(source)
    plain = as_json(data, name := "the config")
    with placed(f"{name}: "):
        check_plain(plain)
    return plain, name, Path()


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
        ConfigError: all errors found, one per line.
    """
    data, name, folder = read_source(source)
    if is_env_config(data):
        raise ConfigError(f"{name}: is an environment's config; needed is the training config that names it")
    if isinstance(trainer := data.get("trainer"), dict) and (
        "total_timesteps" in trainer or "num_mini_batches" in json.dumps(data.get("algorithm"))
    ):  # numbers of older layouts, which are converted by the rollout's size
        sizes = ("trainer.num_envs=", "trainer.buffer_size=")
        apply_overrides(data, [text for text in overrides if str(text).startswith(sizes)], [])
    return _load(converted(data, "training"), folder, overrides, allowed_imports)


def load_checkpoint_config(
    config: dict[str, Any], overrides: Sequence[str] = (), allowed_imports: Sequence[str] = ()
) -> RunConfig:
    """Check the config in a checkpoint (``RunConfig.resolved``), as :func:`load_run_config` checks a file's."""
    with placed("the checkpoint's config: "):
        check_plain(config)
    return _load(json.loads(json.dumps(config)), Path(), overrides, allowed_imports)


def _load(data: dict[str, Any], folder: Path, overrides: Sequence[str], allowed_imports: Sequence[str]) -> RunConfig:
    """Parse and check both configs; ``folder`` is searched for ``gym_config``, and ``data`` is changed.

    Each part is parsed without its wrong values, so that an error in one place hides none in another.
    """
    own, of_env = split_overrides(overrides, env_config_keys())
    problems: list[str] = []
    apply_overrides(data, own, problems)
    record = data.pop("gym_config", None)  # of a run, unless an override names another one
    if any(override.startswith("trainer.gym_config=") for override in own):
        record = None
    train, wrong = parse(TrainCfg, {key: value for key, value in data.items() if key != "$schema"}, "")
    trainer = train.trainer if train is not None and _is_there(train.trainer) else TrainerCfg()  # type: ignore[call-arg]
    import_allowed_modules(trainer.import_modules, allowed_imports, "trainer.import_modules", folder)
    problems += [*trainer.problems(), *_replaced_overrides(of_env, trainer)]
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
    env: ParsedTask[Any] | None = None
    if record is not None or (_is_there(trainer.gym_config) and not {"trainer", "trainer.gym_config"} & wrong.keys()):
        with collected(problems):
            env = _parse_env(record, trainer, folder, of_env, allowed_imports, problems)
    names = SceneNames() if env is None else env.names
    find = partial(terms_to_cfg, cls=EventCfg, names=names, problems=problems, allowed_imports=allowed_imports)
    loggers = find_loggers(trainer.loggers, allowed_imports, problems)
    events = {kind: find(terms, place=f"trainer.events.{kind}") for kind, terms in vars(trainer.events).items()}
    problems += [f"{place}: {problem}" for place, problem in wrong.items()]
    places = {key: f"'env.{key}' of the environment config" for key in ENV_KEYS}
    places |= {key: f"'{key}' of the environment config" for key in TOP_FIELDS}
    cfgs = {"algorithm.cfg": algorithm, "trainer": trainer}
    places |= {f.name: f"'{at}.{f.name}'" for at, cfg in cfgs.items() if cfg for f in dataclasses.fields(cfg)}
    problems = [_with_place(problem, places) for problem in problems]
    if train is not None and algo_class is not None and policy is not None and env is not None:
        problems += _pair_problems(train.algorithm.name, algorithm, trainer, policy, env, wrong)
    raise_problems(problems)
    assert train is not None
    assert policy is not None
    assert env is not None
    source = find_source(env.env_id)
    if isinstance(policy, PolicyCfg) and policy.scale_actions is None:
        policy = replace(policy, scale_actions=source is not None and not policy.squash)
    for key in ("init_from", "teacher"):
        if isinstance(target := setting_of(policy, key), str):  # ``latest`` is another run later
            found = {key: settled(target)}
            if isinstance(policy, UserPolicyCfg):
                policy = replace(policy, block=policy.block | found)
            else:
                policy = replace(policy, **found)
    if getattr(algorithm, "normalize_returns", False) is None:
        algorithm = replace(algorithm, normalize_returns=source is not None)
    path = trainer.gym_config if isinstance(trainer.gym_config, str) else {}
    if path and record is None:  # from the working directory, for messages of a resume
        path = str(find_named_file(str(path), folder, "trainer.gym_config"))
    train.trainer = replace(trainer, gym_config=path, events=_as_written(events, trainer.events))
    return _assemble(train, policy, algorithm, env, events, loggers)


def env_config_keys() -> Sequence[str]:
    """Return the keys at the top of environment configs, of our tasks and of other libraries'."""
    return tuple(dict.fromkeys((*TOP_KEYS, *(key for source in env_sources() for key in source.keys))))


def _replaced_overrides(overrides: Sequence[str], trainer: TrainerCfg) -> list[str]:
    """Return the errors of overrides of the environment config that the training config replaces, one per line."""
    places = {override: _REPLACED.get(override.partition("=")[0]) for override in overrides}
    return [
        f"override '{override}': has no effect: it is the environment config's, which {place} of the training config "
        "replaces: set that one"
        for override, place in places.items()
        if place is not None and getattr(trainer, place.removeprefix("trainer."), True) is not None
    ]


def _is_there(value: Any) -> bool:
    """Return whether a value was read: one that is wrong may be missing."""
    return value is not dataclasses.MISSING


def _assemble(
    train: TrainCfg,
    policy: PolicyBlock,
    algorithm: Any,
    env: ParsedTask[Any],
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
) -> ParsedTask[Any]:
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
    env: ParsedTask[Any]
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
    if isinstance(env.cfg, EmbodiedEnvCfg):
        sim_cfg = replace(env.cfg.sim_cfg, sim_device=choose_sim_device(trainer, env.cfg, problems))
        env = dataclasses.replace(env, cfg=replace(env.cfg, sim_cfg=sim_cfg))
    return env


def _with_place(problem: str, places: Mapping[str, str]) -> str:
    """Return an error with the place of an unknown key, if there is one in either config."""
    found = re.search(r"(\w+): unknown key", problem)
    if found is None:
        return problem
    if found[1] in places:
        return f"{problem[: found.end()]}. Did you mean {places[found[1]]}?"
    return problem + ("" if found.start() else f"; in the environment config: {', '.join(env_config_keys())}")


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
    env: ParsedTask[Any],
    wrong: Collection[str],
) -> list[str]:
    """Return the errors of parts that do not fit each other, one per line; those about ``wrong`` keys are left out."""
    found: list[str] = []
    algo_class = get_algo_class(algorithm_name)
    with collected(found, f"policy.name: '{policy.name}' with algorithm.name '{algorithm_name}': "):
        algo_class.check_policy_class(get_policy_class(policy.name))
    if "teacher" in algo_class.needs and setting_of(policy, "teacher") is None:
        found.append(f"policy.teacher: is needed by algorithm.name '{algorithm_name}': the run of the teacher")
    if "teacher" not in algo_class.needs and setting_of(policy, "teacher") is not None:
        found.append(f"policy.teacher: has no effect with algorithm.name '{algorithm_name}'")
    if algo_class.learns_from == "demonstrations":
        if trainer.asynchronous is not None:
            found.append(f"trainer.asynchronous: has no effect with algorithm.name '{algorithm_name}'")
    else:
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


def scene_problems(trainer: TrainerCfg, algorithm: Any, cfg: TaskCfg) -> list[str]:
    """Return the errors of settings that need a scene, which another library's environments lack, one per line.

    Args:
        algorithm: algorithm's settings, or None if they are wrong.
    """
    needs_scene = {
        "trainer.viewer": trainer.viewer,
        "trainer.enable_rt": trainer.enable_rt,
        "trainer.sim_device": trainer.sim_device not in (None, "auto", "cpu"),
        "algorithm.cfg.demonstrations": getattr(algorithm, "demonstrations", None) is not None,
    }
    found = [f"{key}: {_no_scene(cfg)}" for key, is_set in needs_scene.items() if is_set]
    for kind, terms in vars(trainer.events).items():
        found += [
            f'trainer.events.{kind}.{name}: {_no_scene(cfg)}; it has no events, and "render_mode": "rgb_array" in '
            "its kwargs records videos of evaluations"
            for name in terms
        ]
    return found


def choose_sim_device(trainer: TrainerCfg, cfg: EmbodiedEnvCfg, problems: list[str]) -> str:
    """Return the device of the physics; errors are added to ``problems``."""
    place, name = "trainer.", trainer.sim_device
    if name is None:
        place, name = "env.sim_cfg.", str(cfg.sim_cfg.sim_device)
    if name == "auto":
        name = "cpu"
        with suppress(ConfigError):  # the learner's device, which is reported with the others
            name = str(resolve_device(trainer.device))
        if name != "cpu" and trainer.device == "auto" and not has_warp():
            logger.log_warning(
                f"the learner runs on {name}, the physics on the processor: for physics on the GPU, "
                f"{install_extra('gpu')}"
            )
            name = "cpu"
    if name.startswith("cuda") and trainer.device == "cpu" and not torch.cuda.is_available():
        logger.log_warning(f"{place}sim_device: '{name}' is not here: the physics runs on the processor, too")
        name = "cpu"
    with collected(problems, place):
        parse_sim_device(name)
    return name


def scene_cfg(cfg: TaskCfg) -> EmbodiedEnvCfg | None:
    """Return the config of environments of ours, or None."""
    return cfg if isinstance(cfg, EmbodiedEnvCfg) else None


def scene_env(env: object) -> EmbodiedEnv | None:
    """Return environments of ours, or None."""
    return env if isinstance(env, EmbodiedEnv) else None


def with_scene(cfg: TaskCfg, place: str) -> EmbodiedEnvCfg:
    """Return the config of environments of ours, for a tool that needs their scene; ``place`` names the tool."""
    if not isinstance(cfg, EmbodiedEnvCfg):
        raise ConfigError(f"{place}: {_no_scene(cfg)}")
    return cfg


def _no_scene(cfg: Any) -> str:
    return f"needs an environment with a scene of EmbodiChain's, and '{cfg.id}' is another library's"


def check_resumed_config(
    before: dict[str, Any], run: RunConfig, target: str, allowed_imports: Sequence[str] = ()
) -> None:
    """Compare a checkpoint's config with the one to continue with; a ConfigError if they differ beyond ``MayChange``.

    Args:
        target: the run to resume, for the message.
    """
    own = json.loads(json.dumps(before))
    for path in may_change():
        *blocks, key = path.split(".")
        own_block, block = _block(own, *blocks), _block(run.resolved, *blocks)
        own_block.pop(key, None)
        if key in block:
            own_block[key] = block[key]
    with placed(f"{target}: the run's own config: "):
        saved = load_checkpoint_config(own, (), allowed_imports)
    lines = differences(_without_recorders(saved.resolved), _without_recorders(run.resolved), "")
    if lines:
        raise ConfigError("\n".join([f"{target}: the config is not the run's:", *lines]))


def may_change() -> Sequence[str]:
    """Return the paths in ``RunConfig.resolved`` of the settings that are ``MayChange`` in their config classes."""
    return (
        *changeable(TrainerCfg, "trainer"),
        *changeable(EmbodiedEnvCfg, "gym_config.env"),
        *(path for source in env_sources() for path in changeable(source.cfg_class, "gym_config")),
    )


def changes_of_env_file(
    config: dict[str, Any], run: RunConfig, overrides: Sequence[str] = (), allowed_imports: Sequence[str] = ()
) -> list[str]:
    """Return how the file that a run's environment config came from differs from it now, one per line.

    Args:
        config: checkpoint's config. A missing file does not differ; of one that is no config any more,
            the first error is the line.
        run: result of :func:`load_checkpoint_config` with the same arguments.
    """
    path = config["trainer"].get("gym_config")
    if not isinstance(path, str) or not Path(path).is_file():
        return []
    try:
        as_file = {key: value for key, value in config.items() if key != "gym_config"}
        now = load_checkpoint_config(as_file, overrides, allowed_imports)
    except ConfigError as error:
        return [str(error).partition("\n")[0]]
    return differences(run.resolved["gym_config"], now.resolved["gym_config"], "")


def _without_recorders(config: dict[str, Any]) -> dict[str, Any]:
    """Return a resolved config without the training's recorders, and another library's ``render_mode``."""
    plain: dict[str, Any] = json.loads(json.dumps(config))
    for events in (_block(plain, "trainer", "events", "train"), _block(plain, "gym_config", "env", "events")):
        for name in [name for name, event in events.items() if event["func"] in _RECORDERS]:
            del events[name]
    _block(plain, "gym_config", "kwargs").pop("render_mode", None)
    return plain


def _block(node: dict[str, Any], *path: str) -> dict[str, Any]:
    """Return an inner block, or an empty one where there is none."""
    for key in path:
        inner = node.get(key)
        node = inner if isinstance(inner, dict) else {}
    return node


def differences(before: Any, now: Any, place: str, owner: str = "the run") -> list[str]:
    """Return where two JSON values differ, one per line.

    Args:
        place: path of both, for the lines.
        owner: owner of the first one, for the lines.
    """
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return [] if before == now else [f"{place}: {json.dumps(before)} in {owner}, {json.dumps(now)} now"]
    lines = []
    for key in dict.fromkeys((*before, *now)):
        inner = f"{place}.{key}".lstrip(".")
        if key in before and key in now:
            lines += differences(before[key], now[key], inner, owner)
        elif key in before:
            lines.append(f"{inner}: {json.dumps(before[key])} in {owner}, not there now")
        else:
            lines.append(f"{inner}: not there in {owner}, {json.dumps(now[key])} now")
    return lines
