"""The Gaussian actor-critic policy.

Legend: ... any batch dimensions, O flattened observation size, A action size.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import PositiveInt
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models.block import (
    NetworkBlock,
    PolicyCfg,
    PolicySpaces,
    build_network,
    network_keys,
    run_network,
    run_networks,
    take_rows,
)
from embodichain.agents.rl.models.gaussian import (
    LOG_STD_RANGE,
    TanhSquash,
)
from embodichain.agents.rl.models.gaussian_policy import GaussianPolicy
from embodichain.utils import configclass

__all__ = ["ActorCritic", "ActorCriticCfg", "build_actor_critic"]


@configclass
class ActorCriticCfg(PolicyCfg):
    """The ``policy`` block of ``actor_critic``."""

    actor: NetworkBlock | None = None
    """Network from the observation to the action's mean."""
    critic: NetworkBlock | None = None
    """Network from the observation to the value."""
    chunk_length: PositiveInt = 1
    """Actions chosen at a time, and executed before the next choice; ``trainer.buffer_size`` must be a multiple."""


def build_actor_critic(
    cfg: ActorCriticCfg, given: PolicySpaces, device: torch.device | str, networks: Mapping[str, nn.Module]
) -> ActorCritic:
    """Build the policy that a checked block describes.

    Args:
        cfg: the block.
        given: the environment's spaces.
        device: where the parameters go.
        networks: ``actor`` and ``critic`` to use instead of the block's.

    Raises:
        ConfigError: the block does not fit the spaces.
    """
    actor, critic = networks.get("actor"), networks.get("critic")
    if actor is None:
        assert cfg.actor is not None
        actor = build_network(cfg.actor, "actor", cfg, given, cfg.chunk_length * given.action_dim)
    if critic is None:
        assert cfg.critic is not None
        critic = build_network(cfg.critic, "critic", cfg, given, 1)
    return ActorCritic(
        given.obs_dim,
        given.action_dim,
        device,
        actor,
        critic,
        cfg.normalize_obs,
        cfg.init_log_std,
        cfg.log_std_range,
        TanhSquash(given.action_space) if cfg.squash else None,
        cfg.chunk_length,
    )


class ActorCritic(GaussianPolicy):
    """Actions are normal around ``actor(obs)`` with a learned deviation that does not depend on the state.

    Without ``squash`` actions are not clipped here: the log-probability is the raw sample's, and the environment clips
    what it is given.

    Args:
        obs_dim: O.
        action_dim: A.
        device: where the parameters go.
        actor: [..., O] -> [..., A], with chunks [..., H A], the mean of the action; a ``CNN`` is given the images too.
        critic: [..., O] -> [..., 1], the value; likewise.
        normalize_obs: normalise observations by their running mean and deviation before both networks; see
            ``update_normalizer``.
        init_log_std: initial log-standard-deviation of every action component.
        log_std_range: lowest and highest log-standard-deviation.
        squash: brings the normal sample into the action space's bounds; the log-probability is then that of the
            squashed action, and the sample is stored as ``raw_action``.
        chunk_length: H, how many actions are chosen at a time; see ``Policy.chunk_length``.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        device: torch.device | str,
        actor: nn.Module,
        critic: nn.Module,
        normalize_obs: bool = False,
        init_log_std: float = 0.0,
        log_std_range: tuple[float, float] = LOG_STD_RANGE,
        squash: TanhSquash | None = None,
        chunk_length: int = 1,
    ) -> None:
        super().__init__(obs_dim, action_dim, normalize_obs, init_log_std, log_std_range, squash, chunk_length)
        self.actor = actor
        self.critic = critic
        self.obs_keys = network_keys(actor, critic)
        self.to(device)

    @property
    def updates_by_rows(self) -> bool:
        """See ``Policy.updates_by_rows``; so it does if its networks are plain MLPs on the CPU."""
        return take_rows(self.actor, self.critic)

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose actions; see ``Policy.forward``. The most likely action is the mean, or the squashed mean."""
        obs = self.normalizer(td["obs"])
        self._sample(td, run_network(self.actor, obs, td), deterministic)
        td["value"] = run_network(self.critic, obs, td).squeeze(-1)
        return td

    def get_value(self, td: TensorDict) -> TensorDict:
        """Write ``value`` [...]; see ``Policy.get_value``."""
        td["value"] = run_network(self.critic, self.normalizer(td["obs"]), td).squeeze(-1)
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        """Return the actions' log-probability and the states' value; see ``Policy.evaluate_actions``."""
        obs = self.normalizer(td["obs"])
        mean, value = run_networks((self.actor, self.critic), obs, td)
        out = self._evaluate(td, mean)
        out["value"] = value.squeeze(-1)
        return TensorDict(out, batch_size=td.batch_size)
