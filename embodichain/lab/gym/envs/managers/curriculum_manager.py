"""Changes of the environment with the policy's progress. Shapes: N environments, n in ``env_ids``."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from embodichain.lab.gym.envs.managers.base import Manager, Term
from embodichain.lab.gym.envs.managers.cfg import CurriculumCfg
from embodichain.lab.gym.envs.managers.checks import build_terms, wrong_return
from embodichain.lab.gym.envs.managers.term_env import TermEnv


class CurriculumManager(Manager):
    """Calls the terms ``func(env, env_ids, **params)`` where episodes have ended, before the next ones begin.

    The state is then still the episodes' last. A term returns a metric: a number for all environments
    ([]) or one for each ([N]); it becomes the metric ``curriculum/<name>``. So that a metric is there from the first
    step on, each term is called once for no environments (n = 0) when the environment is built.
    """

    state_names = ("_metrics",)

    def __init__(self, cfgs: Mapping[str, CurriculumCfg], env: TermEnv) -> None:
        self._terms: list[Term[CurriculumCfg]] = build_terms(cfgs, env, "env.curriculum")
        super().__init__(env, self._terms)
        self._metrics: dict[str, Tensor] = {}
        for term in self._terms:
            self._call(term, env.all_env_ids[:0])

    def end_episodes(self, env_ids: Tensor) -> None:
        """Call the terms for environments [n], which ended an episode.

        Raises:
            ConfigError: a term returns another type or shape.
        """
        for term in self._terms:
            self._call(term, env_ids)

    def metrics(self) -> dict[str, Tensor]:
        """Return the terms' last results, [N] by metric name."""
        return {name: value.float().expand(self._env.num_envs) for name, value in self._metrics.items()}

    def _call(self, term: Term[CurriculumCfg], env_ids: Tensor) -> None:
        env = self._env
        with env.random.stream(term.stream, tick=env.elapsed_steps):
            value = term(env, env_ids)
        if not (isinstance(value, Tensor) and value.shape in ((), (env.num_envs,))):
            wanted = f"[] or [N] = [{env.num_envs}]"
            raise wrong_return(term.place, term.func, value, wanted)
        self._metrics[f"curriculum/{term.name}"] = value
