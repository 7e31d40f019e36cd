"""Conversion of an environment's typed config back to the data of a config file."""

from collections.abc import Callable, Mapping
from typing import Any

from embodichain.lab.gym.envs.env_cfg import EmbodiedEnvCfg
from embodichain.lab.gym.envs.managers.cfg import FunctorCfg
from embodichain.lab.gym.registry import find_env_id
from embodichain.utils import ConfigError, to_dict
from embodichain.utils.utility import as_json

SCENE_KEYS = (
    *(
        "robot",
        "scene",
        "rigid_object",
        "rigid_object_group",
        "background",
        "articulation",
        "sensor",
        "light",
        "terrain",
    ),
)
"""Fields of ``EmbodiedEnvCfg`` at the top of a file, next to ``env``: the scene."""
TOP_FIELDS = ("max_episode_steps", "num_envs")
"""Further ones, which may stand in ``env``, too."""

_PLACE = "the environment's config"
_SHIPPED = ("embodichain.lab.gym.envs.managers.", "embodichain.ext.")


def config_data(cfg: EmbodiedEnvCfg, env_class: type) -> dict[str, Any]:
    """Return the content of a file that ``config_to_cfg`` reads back to a config.

    Args:
        env_class: registered environment's class.

    Raises:
        ConfigError: the class is not registered, or the config has values that no file can hold.
    """
    env_id = find_env_id(env_class)
    if env_id is None:
        raise ConfigError(f"the environment's class {env_class.__name__} is not registered (@register_env)")
    env = to_dict(cfg)
    top = {key: env.pop(key) for key in (*SCENE_KEYS, *TOP_FIELDS)}
    for block, terms in vars(cfg).items():
        if isinstance(terms, dict) and any(isinstance(term, FunctorCfg) for term in terms.values()):
            env[block] = terms_data(terms)
    env["sim_cfg"]["sim_device"] = str(cfg.sim_cfg.sim_device)  # a script's may be a torch.device
    given = {key: value for key, value in top.items() if value is not None}
    return as_json(
        {"id": env_id, **given, "env": {key: value for key, value in env.items() if value is not None}}, _PLACE
    )


def terms_data(terms: Mapping[str, FunctorCfg]) -> dict[str, Any]:
    """Return the content of a block of terms.

    Raises:
        ConfigError: a term's function has no importable name, or its parameters are no plain data.
    """
    block = {name: to_dict(term) | {"func": _name_of(term.func, name)} for name, term in terms.items()}
    return as_json(block, _PLACE)


def _name_of(func: Callable[..., Any] | str, term: str) -> str:
    if isinstance(func, str):
        return func
    module, name = getattr(func, "__module__", "__main__"), getattr(func, "__qualname__", "<")
    if module == "__main__" or "<" in name:
        raise ConfigError(f"the function of the term '{term}' has no name in a module that could be imported")
    return name if module.startswith(_SHIPPED) else f"{module}.{name}"
