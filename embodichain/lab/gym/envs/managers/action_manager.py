"""From the policy's actions to targets of the drives. Shapes: N environments, A action size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from embodichain.lab.gym.envs.managers.base import check_params
from embodichain.lab.gym.envs.managers.cfg import ActionTermCfg
from embodichain.utils import ConfigError

if TYPE_CHECKING:
    from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv

__all__ = ["ActionManager", "ActionTerm"]


class ActionTerm:
    """One meaning of (a part of) the action; its parameters are the arguments of :meth:`configure`."""

    def __init__(self, cfg: ActionTermCfg, env: EmbodiedEnv) -> None:
        self.cfg = cfg
        self.env = env
        check_params(self.configure, cfg.params, 0, "params")
        self.configure(**cfg.params)

    def configure(self) -> None:
        """Take the config's ``params``; a subclass that has any writes them as arguments."""

    @property
    def action_dim(self) -> int:
        """How many numbers of the action belong to this term."""
        raise NotImplementedError

    @property
    def action_limits(self) -> tuple[Tensor, Tensor]:
        """Lowest and highest action, [A] each; the environment clips to them."""
        ones = torch.ones(self.action_dim, device=self.env.device)
        return -ones, ones

    def process_action(self, action: Tensor) -> dict[str, Tensor]:
        """Return targets of the active joints by kind (``qpos``), [N, J], for actions [N, A]."""
        raise NotImplementedError

    def reset(self, env_ids: Tensor) -> None:
        """Forget what belongs to the ended episodes of environments [n]."""


class ActionManager:
    """Hands each term its part of the action, in the order of the config."""

    def __init__(self, cfgs: Mapping[str, ActionTermCfg], env: EmbodiedEnv) -> None:
        if not cfgs:
            raise ConfigError("env.actions: at least one action term is needed")
        self.terms: dict[str, ActionTerm] = {}
        for name, cfg in cfgs.items():
            place = f"env.actions.{name}"
            if not (isinstance(cfg.func, type) and issubclass(cfg.func, ActionTerm)):
                raise ConfigError(f"{place}.func: must be an ActionTerm class, got {cfg.func!r}")
            try:
                self.terms[name] = cfg.func(cfg, env)
            except ConfigError as error:
                raise ConfigError(f"{place}.{error}") from error
        lows, highs = zip(*(term.action_limits for term in self.terms.values()), strict=True)
        self.low: Tensor = torch.cat(lows)
        """Lowest action, [A]."""
        self.high: Tensor = torch.cat(highs)
        """Highest action, [A]."""

    @property
    def total_action_dim(self) -> int:
        """A, over all terms."""
        return sum(term.action_dim for term in self.terms.values())

    @property
    def action_type(self) -> str:
        """The first term's name; an action may be given to the environment as ``{action_type: tensor}``."""
        return next(iter(self.terms))

    def process_action(self, action: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the targets of the active joints by kind for actions [N, A], as one tensor or by term name."""
        if not isinstance(action, Tensor):
            action = torch.cat([action[name] for name in self.terms], dim=1)
        if len(self.terms) == 1:
            return next(iter(self.terms.values())).process_action(action)
        targets: dict[str, Tensor] = {}
        first = 0
        for term in self.terms.values():
            targets |= term.process_action(action[:, first : first + term.action_dim])
            first += term.action_dim
        return targets

    def reset(self, env_ids: Tensor) -> None:
        """Tell the terms which environments [n] begin a new episode."""
        for term in self.terms.values():
            term.reset(env_ids)
