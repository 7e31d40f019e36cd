"""The Gaussian policy without a critic.

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

__all__ = ["ActorOnly", "ActorOnlyCfg", "build_actor_only"]


@configclass
class ActorOnlyCfg(PolicyCfg):
    """The ``policy`` block of ``actor_only``."""

    actor: NetworkBlock | None = None
    """Network from the observation to the action's mean."""
    chunk_length: PositiveInt = 1
    """Actions chosen at a time, and executed before the next choice; ``trainer.buffer_size`` must be a multiple."""


def build_actor_only(
    cfg: ActorOnlyCfg, given: PolicySpaces, device: torch.device | str, networks: Mapping[str, nn.Module]
) -> ActorOnly:
    """Build the policy that a checked block describes.

    Args:
        cfg: the block.
        given: the environment's spaces.
        device: where the parameters go.
        networks: ``actor`` to use instead of the block's.

    Raises:
        ConfigError: the block does not fit the spaces.
    """
    actor = networks.get("actor")
    if actor is None:
        assert cfg.actor is not None
        actor = build_network(cfg.actor, "actor", cfg, given, cfg.chunk_length * given.action_dim)
    return ActorOnly(
        given.obs_dim,
        given.action_dim,
        device,
        actor,
        cfg.normalize_obs,
        cfg.init_log_std,
        cfg.log_std_range,
        TanhSquash(given.action_space) if cfg.squash else None,
        cfg.chunk_length,
    )


class ActorOnly(GaussianPolicy):
    """Chooses actions as ``ActorCritic`` does and values every state at 0: for algorithms without a critic.

    Args:
        obs_dim: O.
        action_dim: A.
        device: where the parameters go.
        actor: [..., O] -> [..., A], with chunks [..., H A], the mean of the action; a ``CNN`` is given the images too.
        normalize_obs: normalise observations by their running mean and deviation before the network.
        init_log_std: initial log-standard-deviation of every action component.
        log_std_range: lowest and highest log-standard-deviation.
        squash: brings the normal sample into the action space's bounds; see ``ActorCritic``.
        chunk_length: H, how many actions are chosen at a time; see ``Policy.chunk_length``.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        device: torch.device | str,
        actor: nn.Module,
        normalize_obs: bool = False,
        init_log_std: float = 0.0,
        log_std_range: tuple[float, float] = LOG_STD_RANGE,
        squash: TanhSquash | None = None,
        chunk_length: int = 1,
    ) -> None:
        super().__init__(obs_dim, action_dim, normalize_obs, init_log_std, log_std_range, squash, chunk_length)
        self.actor = actor
        self.obs_keys = network_keys(actor)
        self.to(device)

    @property
    def updates_by_rows(self) -> bool:
        """See ``Policy.updates_by_rows``; so it does if its networks are plain MLPs on the CPU."""
        return take_rows(self.actor)

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose actions; see ``Policy.forward``. The most likely action is the mean, or the squashed mean."""
        mean = run_network(self.actor, self.normalizer(td["obs"]), td)
        self._sample(td, mean, deterministic)
        return self.get_value(td)

    def get_value(self, td: TensorDict) -> TensorDict:
        """Write zeros as ``value`` [...]."""
        obs = td["obs"]
        td["value"] = obs.new_zeros(obs.shape[:-1])
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        """Return the actions' log-probability, and zeros as ``value``; see ``Policy.evaluate_actions``."""
        (mean,) = run_networks((self.actor,), self.normalizer(td["obs"]), td)
        out = self._evaluate(td, mean)
        out["value"] = mean.new_zeros(mean.shape[:-1])
        return TensorDict(out, batch_size=td.batch_size)
