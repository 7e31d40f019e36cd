"""Events of the environment: at start-up, at each reset, at intervals. Shapes: N environments, n in ``env_ids``."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers.base import Functor, Manager, Term, TermEnv
from embodichain.lab.gym.envs.managers.cfg import BLOCK_MODULES, EventCfg
from embodichain.lab.gym.envs.managers.checks import build_terms
from embodichain.utils import ConfigError, collected, raise_problems, replace
from embodichain.utils.module_utils import find_admitted


class _Intervals(Functor):
    """When the next call of an event with a range of intervals is due."""

    cfg: EventCfg

    def __init__(self, cfg: EventCfg, env: TermEnv) -> None:
        super().__init__(cfg, env)
        self.due = torch.zeros_like(env.elapsed_steps)  # [N] int64, in steps of the present episode

    @override
    def reset(self, env_ids: Tensor) -> None:
        self.draw(env_ids)

    def draw(self, env_ids: Tensor) -> None:
        """Draw the interval from the present step on for environments [n], from the present random stream."""
        assert isinstance(self.cfg.interval_step, tuple)
        shortest, longest = self.cfg.interval_step
        steps = shortest + self.env.random.uniform(env_ids, 0.0, longest - shortest + 1, 1)[:, 0].long()
        self.due = self.due.index_copy(0, env_ids, self.env.elapsed_steps[env_ids] + steps)


class EventManager(Manager):
    """Calls the events ``func(env, env_ids, **params)``; each draws from a random stream of its own."""

    state_names = ("_steps", "_begun")

    def __init__(self, cfgs: Mapping[str, EventCfg], env: TermEnv) -> None:
        super().__init__(env, [])
        self._by_mode: dict[str, list[Term[EventCfg]]] = {"startup": [], "reset": [], "interval": []}
        self._steps = 0
        self._begun: list[str] = []
        self._intervals: dict[str, _Intervals] = {}
        self._take(build_terms(cfgs, env, "env.events"))

    def add(self, cfgs: Mapping[str, EventCfg]) -> None:
        """Add events, by new names, to a scene that is compiled already; ``startup`` events happen at once."""
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

    def apply_interval(self) -> Tensor | None:
        """Count one control step and call the interval events that are due.

        Returns:
            Environments [N] bool that events may have changed; None: no environment.
        """
        self._steps += 1
        env = self._env
        stepping = env.stepping_ids
        is_stepping = torch.zeros_like(env.elapsed_steps, dtype=torch.bool).index_fill(0, stepping, True)
        changed: list[Tensor] = []
        for term in self._by_mode["interval"]:
            interval = term.cfg.interval_step
            if isinstance(interval, tuple):
                is_due = env.elapsed_steps == self._intervals[term.name].due
            elif term.cfg.is_global or getattr(term.func, "is_global", False):
                if self._steps % interval == 0:
                    with env.random.stream(term.name, tick=self._steps):
                        term(env, stepping)
                    changed += [] if _only_reads(term) else [is_stepping]
                continue
            else:
                is_due = env.elapsed_steps % interval == 0
            # An attribute that the first call creates cannot be restored in other rows.
            if len(stepping) == env.num_envs and term.name in self._begun:
                with env.choose(is_due) as due:
                    self._call(term, due)
            else:
                self._call(term, stepping[is_due[stepping]])
            changed += [] if _only_reads(term) else [is_due & is_stepping]
        if not changed:
            return None
        mask = torch.stack(changed).any(dim=0)
        return mask if env.sim.backend.is_asynchronous or mask.any() else None

    def begin_step(self) -> None:
        """Call the recorders that show the first state of an episode."""
        for term in self._by_mode["interval"]:
            if isinstance(term.func, Functor) and term.func.shows_first_state():
                term(self._env, self._env.all_env_ids)

    def _take(self, terms: Sequence[Term[EventCfg]]) -> None:
        self._add(terms)
        for term in terms:
            self._by_mode[term.cfg.mode].append(term)
            if term.cfg.mode == "interval" and isinstance(term.cfg.interval_step, tuple):
                intervals = self._intervals[term.name] = _Intervals(term.cfg, self._env)
                name = f"{term.name}.interval_step"
                self._add([Term(name, term.cfg, intervals, {}, f"env.events.{name}")])

    def _happen(self, terms: Sequence[Term[EventCfg]], env_ids: Tensor) -> None:
        for term in terms:
            with self._env.random.stream(term.name):
                term(self._env, env_ids)

    def _addable(self, cfg: EventCfg, name: str) -> EventCfg:
        """Return an event's config with its function, which may be named."""
        if any(term.name == name for terms in self._by_mode.values() for term in terms):
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
        if not len(env_ids):
            return
        env = self._env
        with env.random.stream(term.name, tick=env.elapsed_steps):
            term(env, env_ids)
        if (intervals := self._intervals.get(term.name)) is not None:
            with env.random.stream(f"{term.name}.interval_step", tick=env.elapsed_steps):
                intervals.draw(env_ids)
        if term.name not in self._begun:
            self._begun.append(term.name)

    def restart(self) -> None:
        """Count the steps for the interval events from 0 again, as the random streams start again."""
        self._steps = 0

    def close(self) -> None:
        """Close the events."""
        for functor in self.functors:
            functor.close()


def _prepares_scene(func: Any) -> bool:
    if not (isinstance(func, type) and issubclass(func, Functor)):
        return False
    return func.prepare_scene.__func__ is not Functor.prepare_scene.__func__  # type: ignore[attr-defined]


def _only_reads(term: Term[EventCfg]) -> bool:
    return getattr(term.func, "only_reads", False)
