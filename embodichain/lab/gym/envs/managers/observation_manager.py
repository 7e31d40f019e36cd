"""Computation of the observation from the state. Shapes: N environments.

Terms with state are called once in a control step. If episodes begin in it, they are called again for the first
observations of these: their state from before the first call is restored, they are reset for these environments, and
called. In the other environments' rows, state and result of the first call stay.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from typing_extensions import override

from embodichain.lab.gym.envs.managers.base import Manager, Term, TermEnv
from embodichain.lab.gym.envs.managers.cfg import ObservationCfg
from embodichain.lab.gym.envs.managers.checks import build_terms, leaving_unchanged, takes_observation, wrong_return
from embodichain.lab.gym.envs.managers.measurements import Recipe, recipe_of
from embodichain.lab.sim.rows import Snapshot, changing_rows
from embodichain.utils import ConfigError, unknown_name
from embodichain.utils.observations import nested_observation


class ObservationManager(Manager):
    """Adds entries to the base observation, and modifies some, in the order of the config."""

    state_names = ("_returned",)

    def __init__(self, cfgs: Mapping[str, ObservationCfg], env: TermEnv) -> None:
        terms = build_terms(cfgs, env, "env.observations")
        super().__init__(env, terms)
        self._terms: list[tuple[str, Term[ObservationCfg]]] = [(term.cfg.name or term.name, term) for term in terms]
        self._stateful = {name: func for name, func in self._functors.items() if func.is_stateful}
        self._takes_obs = frozenset(term.name for term in terms if takes_observation(term.cfg))
        self._mask: Tensor | None = None  # [N] bool: rows that the next call changes; None: all
        self._before: dict[str, Snapshot] = {}  # state before the last call
        self._since: dict[str, Snapshot] = {}  # state after it, while that is restored
        self._is_first = True  # the next call
        self._returned: dict[str, Any] = {}  # by them in the last call: [N, ...], or several by name

    def compute(self, obs: dict[str, Tensor]) -> None:
        """Add to and modify the entries of ``obs``, [N, ...] by slash-separated name, in place.

        A term that returns several tensors by name makes a group of them.
        """
        if self._stateful:
            self._before = self._snapshots()
        random = self._env.random
        shared = {name: value for name, value in obs.items() if name.startswith("robot/")} if self._is_first else {}
        self._is_first = False
        with random.stream("observations", tick=self._env.elapsed_steps):
            for name, term in self._terms:
                random.turn_to(term.stream)
                value = self._call_first(name, term, obs, shared) if shared else self._call(name, term, obs)
                if term.name in self._stateful:
                    value = self._with_other_rows(term, value)
                if isinstance(value, Mapping) and term.cfg.mode == "add":
                    for key, part in value.items():
                        obs[f"{name}/{key}"] = self._checked(term, part)
                else:
                    obs[name] = self._checked(term, value)

    @property
    def has_state(self) -> bool:
        """Whether any term has state."""
        return bool(self._stateful)

    def recipe(self, entry: str) -> Recipe | None:
        """Return how an entry follows from raw measurements; None if not all of its terms say so."""
        found: Recipe | None = None
        for name, term in self._terms:
            if name == entry:
                own = recipe_of(self._env, term.func, term.params)
                if term.cfg.mode == "modify":
                    own = None if own is None or found is None else found.followed_by(own)
                found = own
        return found

    def rewind(self) -> None:
        """Restore the terms' state from before their last call, which the next one replaces."""
        if self._before:
            self._since = self._snapshots()
            self._restore(self._before)

    @contextmanager
    def changing(self, mask: Tensor) -> Iterator[None]:
        """Restrict the terms' call inside the block to the rows of a mask [N] bool."""
        self._mask = mask
        try:
            with changing_rows([self._env], mask):  # attributes that terms set on the environment
                yield
        finally:
            self._mask = None
        states = self._since or self._before
        for name, functor in self._stateful.items():
            functor.load_state_dict(states[name].with_rows_of(functor.state_dict(), mask))
        self._since = {}

    @override
    @contextmanager
    def leaving_no_trace(self) -> Iterator[None]:
        with super().leaving_no_trace():
            yield
        self._before, self._returned = {}, {}

    @override
    def stateful(self) -> list[Any]:
        return []  # this class restores their rows itself

    @override
    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"before": {name: snapshot.copy() for name, snapshot in self._before.items()}}

    @override
    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._before = {name: Snapshot(value) for name, value in state.get("before", {}).items()}

    def _call(self, name: str, term: Term[ObservationCfg], obs: dict[str, Tensor]) -> Any:
        """Return a term's value for the observation so far."""
        if term.cfg.mode == "modify" and name not in obs:
            raise ConfigError(f"{term.place}.name: {unknown_name('entry', name, obs)}")
        if term.cfg.mode == "modify":
            return term(self._env, obs[name])
        if term.name in self._takes_obs:
            return term(self._env, nested_observation(obs, self._env.device))
        return term(self._env)

    def _call_first(
        self, name: str, term: Term[ObservationCfg], obs: dict[str, Tensor], shared: Mapping[str, Tensor]
    ) -> Any:
        with leaving_unchanged(term.place, term.func, shared):
            return self._call(name, term, obs)

    def _with_other_rows(self, term: Term[ObservationCfg], value: Any) -> Any:
        """Return a term's value with the previous rows of the other environments, and store it."""
        # A copy: a term may return the buffer that it writes into at its next call.
        value = Snapshot(value).copy()
        if self._mask is not None and term.name in self._returned:
            value = Snapshot(self._returned[term.name]).with_rows_of(value, self._mask)
        self._returned[term.name] = value
        return value

    def _checked(self, term: Term[ObservationCfg], value: object) -> Tensor:
        num_envs = self._env.num_envs
        if not isinstance(value, Tensor) or value.dim() == 0 or len(value) != num_envs:
            raise wrong_return(term.place, term.func, value, f"[N, ...] with N = {num_envs}")
        return value
