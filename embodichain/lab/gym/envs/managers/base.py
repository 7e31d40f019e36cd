"""What the managers share: terms made from configs, checked before anything runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from torch import Tensor

from embodichain.lab.gym.envs.managers.cfg import FunctorCfg, SceneEntityCfg
from embodichain.utils import ConfigError
from embodichain.utils.errors import nearest
from embodichain.utils.validation import from_dict

if TYPE_CHECKING:
    from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv
    from embodichain.lab.sim import SimulationManager

__all__ = ["Functor", "Term", "build_terms"]

Cfg = TypeVar("Cfg", bound=FunctorCfg)


class Functor:
    """A term that keeps state; one without state is better a plain function.

    A subclass writes ``__call__`` with the arguments that a function in its place would have.
    """

    is_global: ClassVar[bool] = False
    """Whether it is about all environments together, and as an interval event never happens to some of them alone."""

    def __init__(self, cfg: FunctorCfg, env: EmbodiedEnv) -> None:
        self.cfg = cfg
        self.env = env

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Do what the term is for; arguments and result are those of the manager's functions."""
        raise NotImplementedError

    @classmethod
    def prepare_scene(cls, sim: SimulationManager, params: Mapping[str, Any]) -> None:
        """Add to the scene what the functor needs with its config's ``params``, before the scene is compiled."""

    def reset(self, env_ids: Tensor) -> None:
        """Forget what belongs to the ended episodes of environments [n]."""

    def close(self) -> None:
        """Release what the functor holds, when the environment closes."""


@dataclass(frozen=True)
class Term(Generic[Cfg]):
    """A term ready to be called.

    Attributes:
        name: its key in the config.
        cfg: its config.
        func: the function, or the instance of the class.
        params: keyword arguments for each call.
    """

    name: str
    cfg: Cfg
    func: Any
    params: dict[str, Any]


def build_terms(cfgs: Mapping[str, Cfg], env: EmbodiedEnv, place: str, leading: Sequence[str]) -> list[Term[Cfg]]:
    """Make terms from configs.

    Args:
        cfgs: by term name.
        env: the environment; its entities are there already.
        place: of the block in the config, for messages.
        leading: names of the arguments that the manager itself passes.

    Raises:
        ConfigError: a parameter is unknown or missing, or an entity is not in the scene.
    """
    terms = []
    for name, cfg in cfgs.items():
        params = {key: _entity(value, f"{place}.{name}.params.{key}") for key, value in cfg.params.items()}
        _check_entities(params, env, f"{place}.{name}.params")
        func: Any = cfg.func
        if isinstance(func, type) and issubclass(func, Functor):
            check_params(func.__call__, params, len(leading) + 1, f"{place}.{name}.params")
            func = func(cfg, env)
        else:
            assert callable(func), "names are resolved when the config is read"
            check_params(func, params, len(leading), f"{place}.{name}.params")
        terms.append(Term(name, cfg, func, params))
    return terms


def check_params(func: Callable[..., Any], params: Mapping[str, Any], skip: int, place: str) -> None:
    """Check keyword arguments against a signature whose first ``skip`` arguments come from elsewhere.

    Raises:
        ConfigError: an argument is unknown or missing.
    """
    arguments = list(inspect.signature(func).parameters.values())[skip:]
    if any(a.kind is a.VAR_KEYWORD for a in arguments):
        return
    known = [a.name for a in arguments]
    for key in params:
        if key not in known:
            raise ConfigError(f"{place}.{key}: unknown parameter.{nearest(key, known)} Known: {', '.join(known)}")
    for argument in arguments:
        if argument.default is argument.empty and argument.name not in params:
            raise ConfigError(f"{place}.{argument.name}: required, but missing")


def _entity(value: Any, place: str) -> Any:
    if isinstance(value, list):
        return [_entity(item, f"{place}[{i}]") for i, item in enumerate(value)]
    return from_dict(SceneEntityCfg, value, place) if isinstance(value, dict) and "uid" in value else value


def _check_entities(params: Mapping[str, Any], env: EmbodiedEnv, place: str) -> None:
    known = env.sim.entity_uids
    for key, value in params.items():
        if isinstance(value, SceneEntityCfg):
            uid, path = value.uid, f"{place}.{key}.uid"
        elif key.endswith("_uid"):
            uid, path = value, f"{place}.{key}"
        else:
            continue
        if uid not in known:
            raise ConfigError(f"{path}: no '{uid}' in the scene.{nearest(uid, known)} There are: {', '.join(known)}")
