"""Conditions that end episodes. Shapes: N environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import Manager, Term
from embodichain.lab.gym.envs.managers.cfg import TerminationCfg
from embodichain.lab.gym.envs.managers.checks import build_terms, wrong_return
from embodichain.lab.gym.envs.managers.term_env import TermEnv


class TerminationManager(Manager):
    """Computes the terms ``func(env, **params)``, each [N] bool."""

    def __init__(self, cfgs: Mapping[str, TerminationCfg], env: TermEnv) -> None:
        self._terms: list[Term[TerminationCfg]] = build_terms(cfgs, env, "env.terminations")
        super().__init__(env, self._terms)

    @property
    def has_terms(self) -> bool:
        """Whether there is any."""
        return bool(self._terms)

    def compute(self) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return which episodes fail and which are cut short, and each term's value by metric name, [N] bool each.

        Raises:
            ConfigError: a term returns another type or shape.
        """
        num_envs, device, random = self._env.num_envs, self._env.device, self._env.random
        failed, timed_out = torch.zeros(2, num_envs, dtype=torch.bool, device=device).unbind()
        metrics: dict[str, Tensor] = {}
        values: list[Any] = []
        with random.stream("terminations", tick=self._env.elapsed_steps):
            for term in self._terms:
                random.turn_to(term.stream)
                values.append(term(self._env))
        for term, value in zip(self._terms, values, strict=True):
            if not (isinstance(value, Tensor) and value.dtype == torch.bool and value.shape == (num_envs,)):
                raise wrong_return(term.place, term.func, value, f"[N] = [{num_envs}] of bool")
            if term.cfg.time_out:
                timed_out = timed_out | value
            else:
                failed = failed | value
            metrics[f"termination/{term.name}"] = value
        return failed, timed_out, metrics
