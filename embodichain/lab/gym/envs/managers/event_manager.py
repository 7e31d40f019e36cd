"""Events of the environment: at start-up, at each reset, at intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from embodichain.lab.gym.envs.managers.base import Functor, Manager, Term
from embodichain.lab.gym.envs.managers.cfg import EventCfg
from embodichain.lab.gym.envs.managers.checks import build_terms
from embodichain.lab.gym.envs.managers.modules import BLOCK_MODULES
from embodichain.lab.gym.envs.managers.term_env import TermEnv
from embodichain.utils import ConfigError
from embodichain.utils.configclass import replace
from embodichain.utils.errors import collected, raise_problems
from embodichain.utils.module_utils import find_admitted


class EventManager(Manager):
    """Calls the events ``func(env, env_ids, **params)``; each draws from a random stream of its own."""

    state_names = ("_steps", "_begun")

    def __init__(self, cfgs: Mapping[str, EventCfg], env: TermEnv) -> None:
        super().__init__(env, [])
        self._terms: list[Term[EventCfg]] = []
        self._by_mode: dict[str, list[Term[EventCfg]]] = {"startup": [], "reset": [], "interval": []}
        self._steps = 0
        self._begun: list[str] = []
        self._take(build_terms(cfgs, env, "env.events"))

    def add(self, cfgs: Mapping[str, EventCfg]) -> None:
        """Add events to a scene that is compiled already; those of mode ``startup`` happen at once.

        Args:
            cfgs: by names that no event has yet.

        Raises:
            ConfigError: with every error, a line each; nothing is added then.
        """
        problems: list[str] = []
        found: dict[str, EventCfg] = {}
        for name, cfg in cfgs.items():
            with collected(problems):
                found[name] = self._addable(cfg, name)
        raise_problems(problems)
        terms = build_terms(found, self._env, "events")
        self._take(terms)
        self._happen([term for term in terms if term.cfg.mode == "startup"], self._env.all_env_ids)

    def apply(self, mode: str, env_ids: Tensor) -> None:
        """Call the events of mode ``startup`` or ``reset`` for environments [n]."""
        self._happen(self._by_mode[mode], env_ids)

    def apply_interval(self) -> None:
        """Count one control step and call the interval events that are due."""
        self._steps += 1
        env = self._env
        stepping = env.stepping_ids
        for term in self._by_mode["interval"]:
            if term.cfg.is_global or getattr(term.func, "is_global", False):
                if self._steps % term.cfg.interval_step == 0:
                    with env.random.stream(term.name, tick=self._steps):
                        term(env, stepping)
                continue
            is_due = env.elapsed_steps % term.cfg.interval_step == 0
            # An attribute that the first call creates cannot be restored in other rows.
            if len(stepping) == env.num_envs and term.name in self._begun:
                with env.choose(is_due) as due:
                    self._call(term, due)
            else:
                self._call(term, stepping[is_due[stepping]])

    def _take(self, terms: Sequence[Term[EventCfg]]) -> None:
        self._terms += terms
        self._add(terms)
        for term in terms:
            self._by_mode[term.cfg.mode].append(term)

    def _happen(self, terms: Sequence[Term[EventCfg]], env_ids: Tensor) -> None:
        for term in terms:
            with self._env.random.stream(term.name):
                term(self._env, env_ids)

    def _addable(self, cfg: EventCfg, name: str) -> EventCfg:
        """Return an event's config with its function, which may be named."""
        if any(term.name == name for term in self._terms):
            raise ConfigError(f"events.{name}: the environment has an event of that name already")
        func = cfg.func
        if isinstance(func, str):
            func = find_admitted(func, BLOCK_MODULES["events"], (), f"events.{name}.func")
        if _prepares_scene(func):
            raise ConfigError(
                f"events.{name}.func: '{func.__name__}' prepares the scene before it is compiled, so it cannot be "
                "added to one that is: put it into the environment's config, env.events"
            )
        return replace(cfg, func=func)

    def _call(self, term: Term[EventCfg], env_ids: Tensor) -> None:
        """Call an interval event for environments [n], if there are any."""
        if len(env_ids):
            with self._env.random.stream(term.name, tick=self._env.elapsed_steps):
                term(self._env, env_ids)
            if term.name not in self._begun:
                self._begun.append(term.name)

    @property
    def steps(self) -> int:
        """Control steps counted for the interval events."""
        return self._steps

    def restart(self, steps: int = 0) -> None:
        """Set the interval events' count of steps, as the random streams start again."""
        self._steps = steps

    def close(self) -> None:
        """Close the events."""
        for functor in self.functors:
            functor.close()


def _prepares_scene(func: Any) -> bool:
    if not (isinstance(func, type) and issubclass(func, Functor)):
        return False
    return func.prepare_scene.__func__ is not Functor.prepare_scene.__func__  # type: ignore[attr-defined]
