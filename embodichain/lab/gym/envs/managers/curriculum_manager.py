"""Changes of the environment with the policy's progress. Shapes: N environments, n in ``env_ids``."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from embodichain.lab.gym.envs.managers.base import Manager, Term
from embodichain.lab.gym.envs.managers.cfg import CurriculumCfg
from embodichain.lab.gym.envs.managers.checks import build_terms
from embodichain.lab.gym.envs.managers.term_env import TermEnv


class CurriculumManager(Manager):
    """Calls the terms ``func(env, env_ids, **params)`` where episodes have ended, before the next ones begin.

    The state is then still that of the episodes' last step. A term returns what to log: a number for all environments
    ([]) or one for each ([N]); it becomes the metric ``curriculum/<name>``.
    """

    state_names = ("_metrics",)

    def __init__(self, cfgs: Mapping[str, CurriculumCfg], env: TermEnv) -> None:
        self._terms: list[Term[CurriculumCfg]] = build_terms(cfgs, env, "env.curriculum")
        super().__init__(env, self._terms)
        self._metrics: dict[str, Tensor] = {}

    def end_episodes(self, env_ids: Tensor) -> None:
        """Call the terms for environments [n], whose episodes have ended."""
        env = self._env
        for term in self._terms:
            with env.random.stream(term.stream, tick=env.elapsed_steps):
                self._metrics[f"curriculum/{term.name}"] = term.func(env, env_ids, **term.params)

    def metrics(self) -> dict[str, Tensor]:
        """Return what the terms last returned, [N] by metric name; none before an episode has ended."""
        return {name: value.float().expand(self._env.num_envs) for name, value in self._metrics.items()}
