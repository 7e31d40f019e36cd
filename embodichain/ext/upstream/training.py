"""Converts other layouts of the training config to ours: our older ones, and EmbodiChain's.

EmbodiChain 0.1 is ours. Differences of 0.2.0 to 0.3.2 are in the tables and small functions of the second half.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from embodichain.agents.rl.config.trainer_cfg import TrainerCfg
from embodichain.ext.upstream.environment import refuse_other_products
from embodichain.ext.upstream.translation import Translation
from embodichain.lab.gym.config.env_config import TOP_KEYS, ConfigFile
from embodichain.lab.gym.registry import find_env_spec
from embodichain.utils import ConfigError, collected, logger, raise_problems

# Policies with another layout of their block; a user's policy may have keys of the same names.
_OLD_POLICIES = ("actor_critic", "actor_only", "vla")
_THEIR_ALGORITHMS = ("ppo", "grpo")


def convert_training(data: dict[str, Any]) -> dict[str, Any]:
    """Return a training config's plain data, which are changed, in the present layout; warnings name moved keys."""
    refuse_other_products(data)
    translation = Translation(data)
    _read_older(translation)
    ours = len(translation.moved)
    _read_trainer(translation)
    if translation.get("policy.name") in _OLD_POLICIES:
        _read_policy(translation)
    _read_algorithm(translation)
    weight, is_theirs = translation.get("algorithm.cfg.vf_coef"), translation.moved[ours:] or translation.unused
    if (env := translation.take("env")) is not None:
        translation.put("trainer.gym_config", whole_env(env, translation), "env")
    translation.report("training config")
    if is_theirs and translation.get("algorithm.name") == "ppo" and _is_number(weight):
        logger.log_warning(
            f"algorithm.cfg.vf_coef: weights half the squared error here, all of it in EmbodiChain: {2 * weight} is "
            f"EmbodiChain's {weight}"
        )
    raise_problems(translation.problems)
    return data


def _read_older(translation: Translation) -> None:
    """Convert the layouts that this package's own configs had."""
    translation.move("runtime", "trainer")
    if (cuda := translation.take("trainer.cuda")) is not None:
        device = f"cuda:{translation.get('trainer.gpu_id') or 0}" if cuda else "cpu"
        translation.put("trainer.device", device, "trainer.cuda", was=cuda)
    translation.move("trainer.rollout_steps", "trainer.buffer_size")
    if translation.get("policy.name") not in _OLD_POLICIES:
        return
    if isinstance(translation.get("policy.cfg"), dict):
        for key, value in translation.take("policy.cfg").items():
            translation.put(f"policy.{key}", value, f"policy.cfg.{key}")
    for network in ("policy.actor", "policy.critic"):
        for key in ("hidden_sizes", "activation"):
            translation.move(f"{network}.{key}", f"{network}.network_cfg.{key}")


# ---------------------------------------------------------------------------------------------------------------------
# EmbodiChain 0.2.0 to 0.3.2. A null means its own default.

_UNUSED = {  # without an effect on learning; trainer.renderer since 0.2.0, the others since 0.2.4
    "trainer.renderer": "trainer.enable_rt chooses ray tracing",
    "trainer.eval_seed": "the episodes of evaluations follow from trainer.seed",
    "trainer.best_eval_metric": "the best checkpoint has the highest success rate, then return",
    "trainer.best_eval_mode": "the best checkpoint has the highest success rate, then return",
}
_SAME = {
    "trainer.best_eval_metric": "eval/success_rate",
    "trainer.best_eval_mode": "max",
    "trainer.save_frequency_updates": 0,
}
_RENAMED = {
    "policy.initial_log_std": "policy.init_log_std",  # 0.2.4
    **{
        f"policy.{role}.network_cfg.{old}": f"policy.{role}.network_cfg.{new}"
        for role in ("actor", "critic")
        for old, new in (("use_layernorm", "layer_norm"), ("dropout_p", "dropout"))
    },
}
_FIXED = {  # 0.3: fixed values of PPO here, and why
    "algorithm.cfg.minimum_learning_rate": ((1e-5,), "the adapted learning rate is between 1e-05 and 0.01"),
    "algorithm.cfg.maximum_learning_rate": ((1e-2,), "the adapted learning rate is between 1e-05 and 0.01"),
    "algorithm.cfg.action_bound_coef": ((0.0,), "there is no such loss; 'policy.squash' keeps actions within bounds"),
}
_CHOICES: dict[str, tuple[str, dict[Any, Any]]] = {  # 0.3: our path, and our value for each of theirs
    "algorithm.cfg.schedule": ("algorithm.cfg.lr_schedule", {"fixed": "constant", "adaptive": "adaptive"}),
    "algorithm.cfg.normalize_advantage_per_mini_batch": (
        "algorithm.cfg.normalize_advantages",
        {True: "minibatch", False: "rollout"},
    ),
}
_IN_REPOSITORY, _TASK_PACKAGE = "extensions/", "embodichain_tasks/"  # 0.3.2
_CLIP_COEF = 0.2  # of both packages, where it is not given
# Gains of orthogonal weights: the hidden layers', and of the last one by network, as in models/networks.py.
_HIDDEN_GAIN, _OUTPUT_GAINS = math.sqrt(2), {"actor": 0.01, "critic": 1.0}


def _read_trainer(translation: Translation) -> None:
    for path, same in _SAME.items():
        if translation.get(path) == same:
            translation.take(path)
    for path, reason in _UNUSED.items():
        translation.skip(path, reason)
    _read_learning_env(translation)
    path = translation.get("trainer.gym_config")
    if isinstance(path, str) and path.startswith(_IN_REPOSITORY + _TASK_PACKAGE):  # the wheel lacks the first folder
        translation.take("trainer.gym_config")
        ours = path.removeprefix(_IN_REPOSITORY)
        translation.put("trainer.gym_config", ours, "trainer.gym_config", was=path)
    _convert(translation, "trainer.save_frequency_updates", "trainer.save_freq", lambda n: f"{_count(n)} it")
    _convert_by_rollout(
        translation, "trainer.total_timesteps", "trainer.iterations", lambda steps, rollout: math.ceil(steps / rollout)
    )


def _read_learning_env(translation: Translation) -> None:
    """Read an environment that is named with arguments; EmbodiChain's own is differentiable, and refused."""
    if (block := translation.take("trainer.learning_env")) is None:
        return
    env_id, cfg = (block.get("name"), block.get("cfg", {})) if isinstance(block, dict) else (block, {})
    if env_id == "PointMassRL":
        raise ConfigError(
            "trainer.learning_env: 'PointMassRL' belongs to EmbodiChain's differentiable training, which this package "
            "does not have; its smallest task is CartPoleRL: configs/agents/rl/basic/cart_pole"
        )
    translation.put("env", {"id": env_id, "cfg": cfg}, "trainer.learning_env")


def _read_policy(translation: Translation) -> None:
    for old, new in _RENAMED.items():
        translation.move(old, new)
    _convert(translation, "policy.initial_action_std", "policy.init_log_std", _log)
    _convert(translation, "policy.action_std_range", "policy.log_std_range", _logs)
    _read_normalization(translation)
    for role, gain in _OUTPUT_GAINS.items():
        _read_gains(translation, f"policy.{role}.network_cfg.orthogonal_init", gain)


def _read_normalization(translation: Translation) -> None:
    """Read the two normalisers of actor and critic, which are one here."""
    new, paths = "policy.normalize_obs", [f"policy.{role}_obs_normalization" for role in ("actor", "critic")]
    given = [path for path in paths if translation.get(path) is not None]
    flags = {path: _take_flag(translation, path) for path in given}
    if not given or None in flags.values():
        return
    actor, critic = (flags.get(path, False) for path in paths)
    if translation.get("policy.critic") is None or actor == critic:
        translation.put(new, actor, given[0])
    else:
        translation.refuse(
            paths[0], f"must be as '{paths[1]}': here both networks read the same normalised observation"
        )


def _read_gains(translation: Translation, path: str, output_gain: float) -> None:
    """Read gains by layer; here orthogonal weights have the usual ones."""
    gains = translation.get(path)
    if gains is None or isinstance(gains, bool):
        return
    translation.take(path)
    if isinstance(gains, list) and _are_close(gains, [_HIDDEN_GAIN] * (len(gains) - 1) + [output_gain]):
        translation.put(path, True, path, was=gains)
    else:
        translation.refuse(
            path, f"must be the gains {_HIDDEN_GAIN:.3f} and, of the last layer, {output_gain}, got {gains}"
        )


def _read_algorithm(translation: Translation) -> None:
    if translation.get("algorithm.name") == "apg":
        raise ConfigError(
            "algorithm.name: 'apg' differentiates through the simulation, which MuJoCo does not offer: use 'ppo', "
            "'grpo' or 'sac'"
        )
    name = translation.get("algorithm.name")
    if name not in _THEIR_ALGORITHMS:
        return
    _read_optimizer(translation)
    _read_scheduler(translation)
    if name != "ppo":
        return  # the other keys are PPO's
    for path, (allowed, reason) in _FIXED.items():
        translation.require(path, allowed, reason)
    for path, (new, choices) in _CHOICES.items():
        _convert(translation, path, new, functools.partial(_choice, choices))
    if translation.get("algorithm.cfg.desired_kl") is None:
        translation.take("algorithm.cfg.desired_kl")
    _read_value_clipping(translation)
    _convert_by_rollout(translation, "algorithm.cfg.num_mini_batches", "algorithm.cfg.batch_size", _minibatch_size)


def _read_value_clipping(translation: Translation) -> None:
    """Read whether values are clipped; here their own bound says so."""
    old, new = "algorithm.cfg.use_clipped_value_loss", "algorithm.cfg.clip_value_coef"
    is_clipped = _take_flag(translation, old)
    if is_clipped:
        bound = translation.get("algorithm.cfg.clip_coef")
        translation.put(new, bound if _is_number(bound) else _CLIP_COEF, old, was=True)
    elif is_clipped is False and translation.get(new) is not None:
        translation.put(new, None, old, was=False)


def _minibatch_size(number: int, rollout: int) -> int:
    if number > rollout:
        raise ConfigError(f"must be at most {rollout}, the transitions of a rollout, got {number}")
    return math.ceil(rollout / number)


def _read_optimizer(translation: Translation) -> None:
    """Read the block ``optimizer``, of which only Adam's rate can be chosen here."""
    path = "algorithm.cfg.optimizer"
    block = translation.take_object(path)
    block.require("name", ("adam",), "all algorithms use Adam")
    block.require("kwargs", ({},), "Adam's other settings cannot be chosen")
    if (rate := block.take("learning_rate")) is not None:
        translation.put("algorithm.cfg.learning_rate", rate, f"{path}.learning_rate")
    _refuse_rest(block)


def _read_scheduler(translation: Translation) -> None:
    """Read the block ``lr_scheduler``."""
    path, new = "algorithm.cfg.lr_scheduler", "algorithm.cfg.lr_schedule"
    block = translation.take_object(path)
    kwargs = block.take_object("kwargs")
    name = block.get("name")
    block.require("name", ("linear",), "the learning rate is constant without it, or falls linearly to 0")
    kwargs.require("start_factor", (1.0,), "the learning rate falls from its own value to 0")
    kwargs.require("end_factor", (0.0,), "the learning rate falls from its own value to 0")
    _refuse_rest(block)
    _refuse_rest(kwargs)
    if name == "linear" and translation.get("algorithm.name") == "ppo":
        translation.put(new, name, path)
    elif name == "linear":
        block.refuse("name", "must be left out, got 'linear': only PPO's learning rate can fall")


def _refuse_rest(block: Translation) -> None:
    for key, value in block.data.items():
        block.refuse(key, f"has no counterpart here, got {value!r}")


def _convert(translation: Translation, old: str, new: str, convert: Callable[[Any], Any]) -> None:
    """Put ``convert`` of the value at ``old``, if there is one, at ``new``; its ConfigErrors are problems."""
    value = translation.take(old)
    if value is not None:
        with collected(translation.problems, f"{old}: "):
            translation.put(new, convert(value), old, was=value)


def _convert_by_rollout(translation: Translation, old: str, new: str, convert: Callable[[int, int], int]) -> None:
    """Convert as :func:`_convert`, by a rollout's transitions; where the file has both keys, ``old`` counts.

    Args:
        convert: function of the value at ``old`` and the number of transitions.
    """
    value = translation.take(old)
    if value is None:
        return
    translation.take(new)
    num_envs, steps = (translation.get(f"trainer.{key}") for key in ("num_envs", "buffer_size"))
    sizes = [num_envs, TrainerCfg.buffer_size if steps is None else steps]
    with collected(translation.problems, f"{old}: "):
        number = _count(value)
        if num_envs is None:
            raise ConfigError(f"needs 'trainer.num_envs' as well, or write '{new}'")
        if all(map(_is_count, sizes)):  # else the parse reports their errors
            translation.put(new, convert(number, math.prod(sizes)), old, was=value)


def _take_flag(translation: Translation, path: str) -> bool | None:
    """Remove and return a value that is true or false; None if there is none, or, with a problem, it is another."""
    value = translation.take(path)
    if value is None or isinstance(value, bool):
        return value
    translation.refuse(path, f"must be true or false, got {value!r}")
    return None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _count(value: Any) -> int:
    if _is_count(value):
        return int(value)
    raise ConfigError(f"must be a whole number above 0, got {value!r}")


def _log(value: Any) -> float:
    if _is_number(value) and value > 0:
        return math.log(value)
    raise ConfigError(f"must be a number above 0, got {value!r}")


def _logs(values: Any) -> list[float]:
    if isinstance(values, list):
        return [_log(value) for value in values]
    raise ConfigError(f"must be a list of two numbers, got {values!r}")


def _choice(choices: Mapping[Any, Any], value: Any) -> Any:
    if isinstance(value, str | bool) and value in choices:
        return choices[value]
    raise ConfigError(f"must be {' or '.join(map(repr, choices))}, got {value!r}")


def _are_close(values: Sequence[Any], others: Sequence[float]) -> bool:
    pairs = zip(values, others, strict=False)
    return len(values) == len(others) and all(_is_number(a) and abs(a - b) < 0.01 for a, b in pairs)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole_env(block: Any, training: Translation) -> dict[str, Any]:
    """Return the environment's config that a training config's ``env`` block means.

    Where ``cfg`` gives a block (``actions``, ``rewards``, ``robot``, ...), it takes the place of the packaged config's;
    ``extensions`` are put into the packaged ones one by one. Mistakes are added to ``training.problems``.
    """
    given = block if isinstance(block, dict) else {}
    cfg = training.inside("env.cfg", given.get("cfg", {}))
    if not isinstance(block, dict) or set(block) - {"id", "cfg"} or cfg.data is not given.get("cfg", cfg.data):
        training.refuse("env", f"must be an object with 'id' and 'cfg', an object, got {block!r}")
    env = cfg.take_object("env").data
    twice = cfg.data.keys() & env.keys()
    top = {key: data.pop(key) for data in (cfg.data, env) for key in TOP_KEYS if key in data}
    _read_oldest(cfg, top)
    for key in twice | (cfg.data.keys() & env.keys()):
        cfg.refuse(key, f"is given as 'env.cfg.env.{key}', too")
    env |= cfg.data
    env_id = given.get("id", top.get("id"))
    spec = find_env_spec(env_id)
    default = None if spec is None else spec.default_cfg
    packaged = default.read() if isinstance(default, ConfigFile) else {}
    inner = packaged.get("env", {})
    if isinstance(own := env.get("extensions"), dict):  # a task reads all of its own
        env["extensions"] = inner.get("extensions", {}) | own
    scale = env.pop("action_scale", None)
    data = packaged | top | {"id": env_id, "env": inner | env}
    if scale is not None:
        translation = Translation(data, "", training.problems, training.moved)
        _scale_actions(scale, translation, is_packaged="actions" not in env)
    return data


def _read_oldest(cfg: Translation, top: dict[str, Any]) -> None:
    """Translate keys of the oldest form, except for the actions' scale."""
    cfg.require("obs_mode", ("state",), "images are observed where 'sensor' has cameras")
    if (length := cfg.take("episode_length")) is not None:
        Translation(top, "env.cfg.", cfg.problems, cfg.moved).put("max_episode_steps", length, "episode_length")
    cfg.move("success_threshold", "extensions.success_threshold")


def _scale_actions(scale: Any, env: Translation, is_packaged: bool) -> None:
    """Move the oldest form's scale of the actions into the only action term."""
    terms = env.get("env.actions")
    names = list(terms) if isinstance(terms, dict) else []
    if len(names) == 1:
        if is_packaged:
            env.take(f"env.actions.{names[0]}.params.scale")
        env.put(f"env.actions.{names[0]}.params.scale", scale, "env.cfg.action_scale")
    else:
        env.refuse("env.cfg.action_scale", f"write 'env.actions.<name>.params.scale' of one of: {', '.join(names)}")
