"""Commands that policies follow. Shapes: N environments, n in ``env_ids``, C length of a command."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import CommandTerm, Manager
from embodichain.lab.gym.envs.managers.cfg import CommandCfg
from embodichain.lab.gym.envs.managers.checks import build_terms
from embodichain.lab.gym.envs.managers.term_env import TermEnv
from embodichain.utils import ConfigError
from embodichain.utils.errors import unknown_name
from embodichain.utils.rows import changing_rows


class CommandManager(Manager):
    """Holds the commands by name; observations, rewards and metrics read them."""

    def __init__(self, cfgs: Mapping[str, CommandCfg], env: TermEnv) -> None:
        built = build_terms(cfgs, env, "env.commands")
        super().__init__(env, built)
        self.terms: dict[str, CommandTerm] = {term.name: term.func for term in built}

    def get_command(self, name: str) -> Tensor:
        """Return the command that the next action is to follow, [N, C]; ConfigError without one of that name."""
        return self.get_term(name).command

    def get_tracked(self, name: str) -> Tensor:
        """Return the command that the last action followed, [N, C]; rewards and metrics are about this one."""
        return self.get_term(name).tracked

    def get_term(self, name: str) -> CommandTerm:
        """Return a command's term; ConfigError where there is none of that name."""
        if name not in self.terms:
            raise ConfigError(f"env.commands: {unknown_name('command', name, self.terms)}")
        return self.terms[name]

    def advance(self) -> None:
        """Let a control step pass, after its physics."""
        if not self.terms:
            return
        env = self._env
        with env.random.stream("commands", tick=env.elapsed_steps), self._changing_stepping():
            for name, term in self.terms.items():
                env.random.turn_to(f"commands.{name}")
                try:
                    term.advance()
                except Exception as error:
                    error.add_note(f"env.commands.{name}")
                    raise

    def _changing_stepping(self) -> AbstractContextManager[None]:
        """Restrict changes to the environments that step: within a chunk of actions not all of them."""
        env = self._env
        if len(env.stepping_ids) == env.num_envs:
            return nullcontext()
        stepping = torch.zeros(env.num_envs, dtype=torch.bool, device=env.device)
        return changing_rows(self.functors, stepping.index_fill(0, env.stepping_ids, True))
