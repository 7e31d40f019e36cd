"""The Gaussian policies that are not recurrent: with a critic and without one.

Legend: ... any batch dimensions, O flattened observation size, A action size, H actions of a chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from pydantic import PositiveInt
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models.block import (
    NetworkBlock,
    PolicyCfg,
    PolicySpaces,
    RunNetworks,
    build_network,
    build_squash,
    network_keys,
    run_network,
    run_networks,
)
from embodichain.agents.rl.models.distributions import (
    LOG_STD_RANGE,
    bounded,
    evaluate_gaussian,
    sample_gaussian,
)
from embodichain.agents.rl.models.normalizer import RunningNormalizer
from embodichain.agents.rl.models.policy import Policy
from embodichain.agents.rl.models.squash import LinearScale, with_raw_action
from embodichain.utils import configclass

__all__ = ["ActorCritic", "ActorCriticCfg", "ActorOnly", "ActorOnlyCfg", "GaussianPolicy", "build_actor_critic"]


@configclass
class ActorOnlyCfg(PolicyCfg):
    """The ``policy`` block of ``actor_only``."""

    actor: NetworkBlock | None = None
    """Network from the observation to the action's mean."""
    chunk_length: PositiveInt = 1
    """Actions chosen at a time, and executed before the next choice; ``trainer.buffer_size`` must be a multiple."""


@configclass
class ActorCriticCfg(ActorOnlyCfg):
    """The ``policy`` block of ``actor_critic``."""

    critic: NetworkBlock | None = None
    """Network from the observation to the value."""


def build_actor_critic(
    cfg: ActorOnlyCfg, given: PolicySpaces, device: torch.device | str, networks: Mapping[str, nn.Module]
) -> ActorCritic:
    """Build an ``ActorCritic`` or ``ActorOnly``; see ``build_policy``. ``networks`` replace the block's.

    Raises:
        ConfigError: the block does not fit the spaces.
    """
    actor, critic = networks.get("actor"), networks.get("critic")
    if actor is None:
        assert cfg.actor is not None
        actor = build_network(cfg.actor, "actor", cfg, given, cfg.chunk_length * given.action_dim)
    settings: dict[str, Any] = {
        "normalize_obs": cfg.normalize_obs,
        "init_log_std": cfg.init_log_std,
        "log_std_range": cfg.log_std_range,
        "squash": build_squash(cfg, given),
        "chunk_length": cfg.chunk_length,
    }
    if not isinstance(cfg, ActorCriticCfg):
        return ActorOnly(given.obs_dim, given.action_dim, device, actor, **settings)
    if critic is None:
        assert cfg.critic is not None
        critic = build_network(cfg.critic, "critic", cfg, given, 1)
    return ActorCritic(given.obs_dim, given.action_dim, device, actor, critic, **settings)


class GaussianPolicy(Policy):
    """Actions are normal around a mean that a subclass computes; their learned std is the same in all states.

    Arguments as for ``ActorCritic``.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        normalize_obs: bool,
        init_log_std: float,
        log_std_range: tuple[float, float],
        squash: LinearScale | None,
        chunk_length: int = 1,
    ) -> None:
        super().__init__()
        self.obs_dim = obs_dim
        self.action_dim = action_dim
        self.chunk_length = chunk_length
        size = chunk_length * action_dim
        self.extra_fields = (("raw_action", size),) if squash is not None else ()
        self.has_normalizer = normalize_obs
        self.normalizer: nn.Module = RunningNormalizer(obs_dim) if normalize_obs else nn.Identity()
        self.log_std = nn.Parameter(torch.full((size,), float(init_log_std)))
        self.log_std_range = log_std_range
        self.squash = squash

    def update_normalizer(self, obs: torch.Tensor) -> None:
        """Merge observations [..., O] into the running statistics; without ``normalize_obs`` it does nothing."""
        if isinstance(self.normalizer, RunningNormalizer):
            self.normalizer.update(obs)

    def imitation_loss(self, td: TensorDict) -> torch.Tensor:
        """Return the loss of demonstrated actions; see ``Policy.imitation_loss``."""
        return super().imitation_loss(with_raw_action(td, self.squash))

    @torch.no_grad()
    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Return ``std``, the mean std of the action's components (of the raw ones with ``squash``)."""
        return {"std": self._bounded_log_std().exp().mean()}

    def _sample(self, td: TensorDict, mean: torch.Tensor, deterministic: bool) -> None:
        """Write the fields of sampled actions around a mean [..., A], or with chunks [..., H A]."""
        sample_gaussian(td, mean, self._bounded_log_std(), self.squash, deterministic, self.chunk_length)

    def _evaluate(self, td: TensorDict, mean: torch.Tensor, value: torch.Tensor) -> TensorDict:
        """Return the result of ``evaluate_actions`` for actions around a mean and values [...]."""
        out = evaluate_gaussian(td, mean, self._bounded_log_std(), self.squash, self.chunk_length)
        return TensorDict({**out, "value": value}, batch_size=td.batch_size)

    def _bounded_log_std(self) -> torch.Tensor:
        return bounded(self.log_std, *self.log_std_range)


class ActorCritic(GaussianPolicy):
    """Actions are normal around ``actor(obs)`` with a learned std that does not depend on the state.

    Without ``squash`` actions are not clipped here: the log-probability is the raw sample's, and the environment clips.

    Args:
        obs_dim: O.
        action_dim: A.
        actor: [..., O] -> [..., A], with chunks [..., H A], the mean of the action; a ``CNN`` also gets the images.
        critic: [..., O] -> [..., 1], the value; likewise. None: every value is 0; see ``ActorOnly``.
        normalize_obs: normalise observations by their running mean and std before both networks; see
            ``update_normalizer``.
        init_log_std: initial log-std of every action component.
        log_std_range: lowest and highest log-std.
        squash: maps the normal sample to the action space's bounds; the log-probability is then that of the mapped
            action, and the sample is stored as ``raw_action``.
        chunk_length: H; see ``Policy.chunk_length``.

    Attributes:
        run_networks: computes both networks in ``evaluate_actions``; the trainer replaces it during an update by one
            that splits the rows among threads (``trainer/threads.py``).
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        device: torch.device | str,
        actor: nn.Module,
        critic: nn.Module | None,
        normalize_obs: bool = False,
        init_log_std: float = 0.0,
        log_std_range: tuple[float, float] = LOG_STD_RANGE,
        squash: LinearScale | None = None,
        chunk_length: int = 1,
    ) -> None:
        super().__init__(obs_dim, action_dim, normalize_obs, init_log_std, log_std_range, squash, chunk_length)
        self.actor = actor
        self.critic: Any = critic  # a network; None without one
        self.run_networks: RunNetworks = run_networks
        self.obs_keys = network_keys(*self._networks())
        self.to(device)

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose actions; see ``Policy.forward``. The most likely action is the mean, or the squashed mean."""
        obs = self.normalizer(td["obs"])
        self._sample(td, run_network(self.actor, obs, td), deterministic)
        td["value"] = self._value(obs, td)
        return td

    def get_value(self, td: TensorDict) -> TensorDict:
        """Write ``value`` [...]; see ``Policy.get_value``."""
        td["value"] = self._value(self.normalizer(td["obs"]), td)
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        """Return the actions' log-probability and the states' value; see ``Policy.evaluate_actions``."""
        mean, *values = self.run_networks(self._networks(), self.normalizer(td["obs"]), td)
        value = values[0].squeeze(-1) if values else mean.new_zeros(mean.shape[:-1])
        return self._evaluate(td, mean, value)

    def _value(self, obs: torch.Tensor, td: TensorDict) -> torch.Tensor:
        if self.critic is None:
            return obs.new_zeros(obs.shape[:-1])
        return run_network(self.critic, obs, td).squeeze(-1)

    def _networks(self) -> list[nn.Module]:
        return [self.actor] if self.critic is None else [self.actor, self.critic]


class ActorOnly(ActorCritic):
    """An ``ActorCritic`` without a critic, with values 0: for algorithms without one."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        device: torch.device | str,
        actor: nn.Module,
        normalize_obs: bool = False,
        init_log_std: float = 0.0,
        log_std_range: tuple[float, float] = LOG_STD_RANGE,
        squash: LinearScale | None = None,
        chunk_length: int = 1,
    ) -> None:
        settings = normalize_obs, init_log_std, log_std_range, squash, chunk_length
        super().__init__(obs_dim, action_dim, device, actor, None, *settings)
