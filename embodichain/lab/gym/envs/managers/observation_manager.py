"""From the state to the observation. Shapes: N environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from embodichain.lab.gym.envs.managers.base import Manager, Term
from embodichain.lab.gym.envs.managers.cfg import ObservationCfg
from embodichain.lab.gym.envs.managers.checks import build_terms, wrong_return
from embodichain.utils import ConfigError
from embodichain.utils.errors import unknown_name

if TYPE_CHECKING:
    from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv

__all__ = ["ObservationManager"]


class ObservationManager(Manager):
    """Adds entries to the base observation, and modifies some, in the order of the config."""

    def __init__(self, cfgs: Mapping[str, ObservationCfg], env: EmbodiedEnv) -> None:
        self._env = env
        terms = build_terms(cfgs, env, "env.observations")
        self._terms: list[tuple[str, Term[ObservationCfg]]] = [(term.cfg.name or term.name, term) for term in terms]

    def compute(self, obs: dict[str, Tensor]) -> None:
        """Add to and modify the entries of ``obs``, [N, ...] by slash-separated name, in place.

        A term that returns several tensors by name makes a group of them.

        Raises:
            ConfigError: an entry that is to be modified is not there, or a term returns something else.
        """
        for name, term in self._terms:
            if term.cfg.mode == "add":
                value = term.func(self._env, **term.params)
                if isinstance(value, Mapping):
                    for key, part in value.items():
                        obs[f"{name}/{key}"] = self._checked(term, part)
                else:
                    obs[name] = self._checked(term, value)
            elif name in obs:
                obs[name] = self._checked(term, term.func(self._env, obs[name], **term.params))
            else:
                raise ConfigError(f"env.observations.{term.name}.name: {unknown_name('entry', name, obs)}")

    def _checked(self, term: Term[ObservationCfg], value: object) -> Tensor:
        num_envs = self._env.num_envs
        if not isinstance(value, Tensor) or value.dim() == 0 or len(value) != num_envs:
            raise wrong_return(f"env.observations.{term.name}", term.func, value, f"[N, ...] with N = {num_envs}")
        return value
