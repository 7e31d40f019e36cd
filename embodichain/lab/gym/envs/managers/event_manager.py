"""Things that happen to the environment: at start-up, at each reset, at intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers.base import Functor, Manager, Term
from embodichain.lab.gym.envs.managers.cfg import EventCfg
from embodichain.lab.gym.envs.managers.checks import build_terms
from embodichain.utils.rows import is_by_mask

if TYPE_CHECKING:
    from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv

__all__ = ["EventManager"]


class EventManager(Manager):
    """Calls the events ``func(env, env_ids, **params)``; each draws from a random stream of its own."""

    def __init__(self, cfgs: Mapping[str, EventCfg], env: EmbodiedEnv) -> None:
        self._env = env
        self._terms = build_terms(cfgs, env, "env.events")
        self._by_mode = {
            mode: [term for term in self._terms if term.cfg.mode == mode] for mode in ("startup", "reset", "interval")
        }
        self._steps = 0
        self._begun: list[str] = []

    @property
    def functors(self) -> list[Functor]:
        """The events that keep state."""
        return [term.func for term in self._terms if isinstance(term.func, Functor)]

    def apply(self, mode: str, env_ids: Tensor) -> None:
        """Call the events of mode ``startup`` or ``reset`` for environments [n]."""
        for term in self._by_mode[mode]:
            with self._env.random.stream(term.name):
                term.func(self._env, env_ids, **term.params)

    def apply_interval(self) -> None:
        """Count one control step and call the interval events that are due."""
        self._steps += 1
        env = self._env
        stepping = env.stepping_ids
        for term in self._by_mode["interval"]:
            if term.cfg.is_global or getattr(term.func, "is_global", False):
                if self._steps % term.cfg.interval_step == 0:
                    with env.random.stream(term.name, tick=self._steps):
                        term.func(env, stepping, **term.params)
                continue
            is_due = env.elapsed_steps % term.cfg.interval_step == 0
            # What the first call makes, such as a new attribute, is not there to be kept from changes.
            if len(stepping) == env.num_envs and is_by_mask(term.func) and term.name in self._begun:
                with env.choose(is_due) as due:
                    self._call(term, due)
            else:
                self._call(term, stepping[is_due[stepping]])

    def _call(self, term: Term[EventCfg], env_ids: Tensor) -> None:
        """Let an interval event happen to environments [n], of which there may be none."""
        if len(env_ids):
            with self._env.random.stream(term.name, tick=self._env.elapsed_steps):
                term.func(self._env, env_ids, **term.params)
            if term.name not in self._begun:
                self._begun.append(term.name)

    @override
    def bound_to_ids(self) -> list[str]:
        names = [term.name for term in self._by_mode["reset"] if not is_by_mask(term.func)]
        return list(dict.fromkeys(names + super().bound_to_ids()))

    @property
    def steps(self) -> int:
        """What the interval events count."""
        return self._steps

    def restart(self, steps: int = 0) -> None:
        """Count the interval events' steps from the beginning again, since the random streams start again."""
        self._steps = steps

    def reset(self, env_ids: Tensor) -> None:
        """Tell the events which environments [n] begin a new episode."""
        for functor in self.functors:
            functor.reset(env_ids)

    def close(self) -> None:
        """Release what the events hold."""
        for functor in self.functors:
            functor.close()
