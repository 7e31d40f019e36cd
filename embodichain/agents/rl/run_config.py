"""A run's configs, read and checked: training config, environment config, and how they fit. Nothing is built here."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import embodichain.lab.gym.envs.tasks.rl  # noqa: F401 (registers the tasks that configs name)
from embodichain.agents.rl.algo import AlgorithmCfg
from embodichain.agents.rl.algo.registry import get_algo_class
from embodichain.agents.rl.config.overrides import apply_overrides, name_overrides, split_overrides
from embodichain.agents.rl.config.trainer_cfg import (
    TrainerCfg,
    inline_env,
    parse_train_config,
    read_train_config,
)
from embodichain.agents.rl.models.registry import check_policy_block
from embodichain.lab.gym.config.env_config import TERM_BLOCKS, TOP_KEYS, parse_env, terms_to_cfg
from embodichain.lab.gym.config.inline_env import InlineEnv, read_inline_env
from embodichain.lab.gym.envs import EmbodiedEnv, EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers.cfg import EventCfg
from embodichain.lab.gym.envs.managers.checks import SceneNames
from embodichain.lab.gym.registry import find_env_class, get_env_spec, get_registered_env_ids
from embodichain.lab.sim.backend import has_warp, parse_sim_device
from embodichain.utils import ConfigError, logger
from embodichain.utils.configclass import replace
from embodichain.utils.device import resolve_device
from embodichain.utils.errors import collected, placed, raise_problems, unknown_name
from embodichain.utils.module_utils import import_allowed_modules
from embodichain.utils.plain_data import check_plain
from embodichain.utils.utility import load_config_file
from embodichain.utils.validation import from_dict

__all__ = ["RunConfig", "check_sizes", "load_checkpoint_config", "load_run_config"]


@dataclass(frozen=True)
class RunConfig:
    """Everything that a run is made from, read and checked.

    Attributes:
        trainer: the training's own settings.
        policy: the policy's block.
        algorithm_name: a registered name.
        algorithm: its settings, with the defaults of those that the config leaves out.
        env_id: the registered environment.
        env: its config for training.
        eval_env: its config for evaluation, or None.
        resolved: all of it as plain data, for the record.
    """

    trainer: TrainerCfg
    policy: dict[str, Any]
    algorithm_name: str
    algorithm: AlgorithmCfg
    env_id: str
    env: EmbodiedEnvCfg
    eval_env: EmbodiedEnvCfg | None
    resolved: dict[str, Any]


def load_run_config(path: str | Path, overrides: Sequence[str] = (), allowed_imports: Sequence[str] = ()) -> RunConfig:
    """Read and check a training config and the environment config that it names; nothing is built.

    Args:
        path: of the training config, or of a run's ``config.json``.
        overrides: ``trainer.num_envs=256``, ``env.rewards.reach.weight=2`` and the like: dotted paths in the training
            config or the environment's.
        allowed_imports: prefixes of the modules that the config may name, in ``trainer.import_modules`` and in dotted
            paths of functors and policies.

    Raises:
        ConfigError: with every error found, a line each.
    """
    problems: list[str] = []
    own, env_overrides = split_overrides(overrides, TOP_KEYS)
    data = read_train_config(path, own, problems)
    return _check_config(data, Path(path).parent, own, env_overrides, allowed_imports, problems)


def load_checkpoint_config(
    config: dict[str, Any], overrides: Sequence[str] = (), allowed_imports: Sequence[str] = ()
) -> RunConfig:
    """Check the config that is in a checkpoint, as :func:`load_run_config` does that of a file.

    Args:
        config: as ``RunConfig.resolved``.
        overrides: ``trainer.iterations=500`` and the like.
        allowed_imports: prefixes of the modules that the config may name, in ``trainer.import_modules`` and in dotted
            paths of functors and policies.

    Raises:
        ConfigError: with every error found, a line each.
    """
    problems: list[str] = []
    with placed("the checkpoint's config: "):
        check_plain(config)
    data = json.loads(json.dumps(config))
    inline_env(data)
    own, env_overrides = split_overrides(overrides, TOP_KEYS)
    apply_overrides(data, own, problems)
    run = _check_config(data, Path(), own, env_overrides, allowed_imports, problems)
    run.resolved["trainer"]["gym_config"] = config["trainer"]["gym_config"]  # where it was from
    return run


def _check_config(
    data: dict[str, Any],
    folder: Path,
    overrides: Sequence[str],
    env_overrides: Sequence[str],
    allowed_imports: Sequence[str],
    problems: list[str],
) -> RunConfig:
    """Check a training config's plain data, and the environment config that it has or names.

    Args:
        data: the training config.
        folder: where ``gym_config`` may be, beside the working directory.
        overrides: that were applied, for the messages.
        env_overrides: to be applied to the environment's config.
        allowed_imports: as above.
        problems: found already.
    """
    trainer, policy, algorithm = (_block(data, name) for name in ("trainer", "policy", "algorithm"))
    modules = trainer.get("import_modules")
    if isinstance(modules, list) and all(isinstance(module, str) for module in modules):
        import_allowed_modules(modules, allowed_imports, "trainer.import_modules")
    inline = _take_inline_env(data, trainer, problems)
    # Each check reads the plain data, so that an error in one place hides none in another.
    with collected(problems):
        train = parse_train_config(data)
        train.trainer.check_distributed(train.trainer.distributed)
        train.trainer.check_viewer()
    if isinstance(trainer.get("device"), str):
        with collected(problems):
            resolve_device(trainer["device"])
    with collected(problems):
        _check_policy(policy, allowed_imports)
    env_data, cfg, names = _load_env(trainer, inline, folder, env_overrides, allowed_imports, problems)
    events = {
        name: terms_to_cfg(block, EventCfg, f"trainer.events.{name}", names, problems, allowed_imports=allowed_imports)
        for name, block in _block(trainer, "events").items()
        if name in ("train", "eval") and isinstance(block, dict)
    }
    problems += _algorithm_problems(algorithm, trainer, env_data)
    sim_device = _sim_device(trainer, cfg, problems)
    raise_problems(name_overrides(problems, overrides))
    assert cfg is not None
    env, eval_env = _env_configs(cfg, train.trainer, events, sim_device)
    algorithm_cfg = get_algo_class(train.algorithm.name).cfg_class(**train.algorithm.cfg)
    env = replace(env, group_size=getattr(algorithm_cfg, "group_size", 1))
    resolved = train.to_dict() | {"gym_config": env_data}  # type: ignore[attr-defined]
    if isinstance(train.trainer.gym_config, str):
        resolved["trainer"]["gym_config"] = str(_find_gym_config(train.trainer.gym_config, folder))
    return RunConfig(
        train.trainer, train.policy, train.algorithm.name, algorithm_cfg, env_data["id"], env, eval_env, resolved
    )


def _block(data: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a block of a config, or an empty one where there is none."""
    block = data.get(name)
    return block if isinstance(block, dict) else {}


def _check_policy(block: dict[str, Any], allowed_imports: Sequence[str]) -> None:
    if "name" in block and not isinstance(block["name"], str):
        raise ConfigError(f"policy.name: Input should be a valid string, got {block['name']!r}")
    problems: list[str] = []
    if block:
        with collected(problems):
            check_policy_block(block, allowed_imports)
    raise_problems(line if line.startswith("policy.") else f"policy: {line}" for line in problems)


def _algorithm_problems(block: dict[str, Any], trainer: dict[str, Any], env_data: dict[str, Any]) -> list[str]:
    """Return what is wrong with the algorithm's settings, by themselves and for the size of the run."""
    problems: list[str] = []
    if not isinstance(block.get("name"), str):
        return problems
    with collected(problems, "algorithm.name: "):
        cfg_class = get_algo_class(block["name"]).cfg_class
    if problems:
        return problems
    settings = _block(block, "cfg")
    with collected(problems):
        from_dict(cfg_class, settings, "algorithm.cfg")
    wrong = {re.split(r"[.\[:]", line.removeprefix("algorithm.cfg."))[0] for line in problems}
    given = (trainer.get("num_envs"), env_data.get("num_envs"), EmbodiedEnvCfg.num_envs)
    num_envs = next(size for size in given if size is not None)
    buffer_size = trainer.get("buffer_size", TrainerCfg.buffer_size)
    sizes_are_right = bool(trainer) and all(isinstance(size, int) and size > 0 for size in (num_envs, buffer_size))
    if sizes_are_right and isinstance(block.get("cfg", {}), dict):
        with suppress(ConfigError):  # something required is missing
            right = {k: v for k, v in settings.items() if k not in wrong}
            problems += check_sizes(from_dict(cfg_class, right, ""), num_envs, buffer_size)
    return problems


def check_sizes(cfg: Any, num_envs: int, num_steps: int) -> list[str]:
    """Return what makes an algorithm's settings impossible for the rollouts' size, a line each.

    Args:
        cfg: the settings; those of a user's own class are the user's to check.
        num_envs: N.
        num_steps: T, of decisions.
    """
    return cfg.check_run(num_envs, num_steps) if isinstance(cfg, AlgorithmCfg) else []


def _take_inline_env(data: dict[str, Any], trainer: dict[str, Any], problems: list[str]) -> InlineEnv | None:
    """Put the environment's config that an older layout has in ``env`` where it stands now, and return it.

    Args:
        data: the training config.
        trainer: its ``trainer`` block.
        problems: what is wrong with the older layout is added.
    """
    block = data.pop("env", None)
    if block is None or "gym_config" in trainer:  # an override names another
        return None
    inline = read_inline_env(block)
    problems += inline.problems
    trainer["gym_config"] = inline.data
    return inline


def _load_env(
    trainer: dict[str, Any],
    inline: InlineEnv | None,
    folder: Path,
    overrides: Sequence[str],
    allowed_imports: Sequence[str],
    problems: list[str],
) -> tuple[dict[str, Any], EmbodiedEnvCfg | None, SceneNames]:
    """Return the environment's config as plain data and as its typed form, and what terms may name in its scene.

    Args:
        trainer: the ``trainer`` block.
        inline: where its environment's config is from, if that stood in the training config's ``env``.
        folder: of the training config.
        overrides: of the environment's config.
        allowed_imports: as :func:`load_run_config`.
        problems: every error found is added; the typed form is without what is wrong, or None where there is no config.
    """
    place, data = "", None
    with collected(problems):
        place, data = _read_env_data(trainer.get("gym_config"), folder)
    if data is None:
        return {}, None, SceneNames(None, None)
    data = copy.deepcopy(data)
    apply_overrides(data, _of_known_terms(data, overrides, problems), problems)
    wrong: list[str] = []
    with collected(wrong, "id: "):
        get_env_spec(_env_id(data))
    # Of an unknown task, the rest is checked as that of a plain environment.
    env_class = find_env_class(data.get("id")) or EmbodiedEnv
    parsed = parse_env(data, env_class=env_class, allowed_imports=allowed_imports)
    wrong += parsed.problems + _evaluation_problems(trainer, data)
    lines = name_overrides(wrong, overrides)
    problems += [place + line for line in lines] if inline is None else inline.in_users_words(lines)
    return data, parsed.cfg, parsed.names


def _of_known_terms(data: dict[str, Any], overrides: Sequence[str], problems: list[str]) -> list[str]:
    """Return the overrides without those of settings of terms that are not there; a line about each of these is added.

    An override may make a term: by the whole of it, or beside others that say its ``func``.
    """
    paths = [override.partition("=")[0].split(".") for override in overrides]
    made = {tuple(path[:3]) for path in paths if len(path) == 3 or path[3:] == ["func"]}
    known = []
    for override, path in zip(overrides, paths, strict=True):
        is_setting = len(path) > 3 and path[0] == "env" and path[1] in TERM_BLOCKS and tuple(path[:3]) not in made
        terms = _block(_block(data, "env"), path[1]) if is_setting else {}
        if is_setting and path[2] not in terms:
            problems.append(f"override '{override}': {unknown_name(f'term of env.{path[1]}', path[2], terms)}")
        else:
            known.append(override)
    return known


def _evaluation_problems(trainer: dict[str, Any], env_data: dict[str, Any]) -> list[str]:
    env_class = find_env_class(env_data.get("id"))
    if trainer.get("enable_eval") is not True or env_class is None:
        return []
    given = env_data.get("max_episode_steps", _block(env_data, "env").get("max_episode_steps"))
    if given is None and get_env_spec(env_data["id"]).max_episode_steps is None:
        return ["max_episode_steps: evaluation needs a time limit, and neither config nor task gives one"]
    return []


def _read_env_data(gym_config: Any, folder: Path) -> tuple[str, dict[str, Any] | None]:
    """Return what to put before the paths in the environment's config, and its plain data."""
    if isinstance(gym_config, dict):
        return "trainer.gym_config.", gym_config
    if not isinstance(gym_config, str):
        return "", None  # a wrong type, which is reported with the others
    path = _find_gym_config(gym_config, folder)
    data = load_config_file(path)
    return f"{path}: ", {key: value for key, value in data.items() if key != "$schema"}


def _env_id(data: dict[str, Any]) -> str:
    env_id = data.get("id")
    if not isinstance(env_id, str):
        known = ", ".join(get_registered_env_ids())
        raise ConfigError(f"the name of an environment is needed, got {env_id!r}. Known: {known}")
    return env_id


def _find_gym_config(name: str, folder: Path) -> Path:
    places = [Path(), folder, *folder.absolute().parents]
    for path in [place / name for place in places]:
        if path.is_file():
            return path
    here, beside = (place.absolute() / name for place in places[:2])
    raise ConfigError(f"trainer.gym_config: no such file: {here} or {beside}, nor in a folder above it")


def _sim_device(trainer: dict[str, Any], cfg: EmbodiedEnvCfg | None, problems: list[str]) -> str:
    """Return where the physics runs.

    Args:
        trainer: the ``trainer`` block.
        cfg: the environment's config, if it could be read.
        problems: what is wrong with it is added.
    """
    own, device = trainer.get("sim_device"), trainer.get("device", "auto")
    place, name = "trainer.", own
    if own is None:
        place, name = "env.sim_cfg.", "auto" if cfg is None else str(cfg.sim_cfg.sim_device)
    if not isinstance(name, str) or not isinstance(device, str):
        return "cpu"  # a wrong type, which is reported with the others
    if name == "auto":
        name = "cpu"
        with suppress(ConfigError):  # the learner's device, which is reported with the others
            name = str(resolve_device(device))
        if name != "cpu" and device == "auto" and not has_warp():
            logger.log_warning(
                f"the learner runs on {name}, the physics on the processor: for physics on the GPU, "
                "pip install 'embodichain-mujoco[gpu]'"
            )
            name = "cpu"
    with collected(problems, place):
        parse_sim_device(name)
    return name


def _env_configs(
    cfg: EmbodiedEnvCfg, trainer: TrainerCfg, events: dict[str, dict[str, EventCfg]], sim_device: str
) -> tuple[EmbodiedEnvCfg, EmbodiedEnvCfg | None]:
    """Return the environment's configs for training and, if enabled, for evaluation."""
    sim_cfg = replace(
        cfg.sim_cfg,
        sim_device=sim_device,
        headless=trainer.headless,
        enable_rt=trainer.enable_rt,
        render_device=str(resolve_device(trainer.device)),
        gpu_id=trainer.gpu_id,
    )
    cfg = replace(cfg, seed=trainer.seed, sim_cfg=sim_cfg, num_envs=trainer.num_envs or cfg.num_envs)
    env = replace(cfg, events=cfg.events | events.get("train", {}))
    if not trainer.enable_eval:
        return env, None
    return env, replace(cfg, events=cfg.events | events.get("eval", {}), num_envs=trainer.num_eval_envs)
