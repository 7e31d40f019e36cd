"""The recurrent Gaussian actor-critic policy.

Legend: N environments, B sequences, L steps of a sequence, O flattened observation size, A action size, S state size.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from pydantic import PositiveInt
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models.actor_critic import GaussianPolicy
from embodichain.agents.rl.models.block import (
    Columns,
    PolicyCfg,
    PolicySpaces,
    build_squash,
    group_columns,
    run_network,
)
from embodichain.agents.rl.models.distributions import LOG_STD_RANGE
from embodichain.agents.rl.models.mlp import MLPCfg, build_mlp_from_cfg
from embodichain.agents.rl.models.squash import LinearScale
from embodichain.utils import configclass
from embodichain.utils.device import check_memory
from embodichain.utils.errors import placed


@configclass
class ActorCriticRecurrentCfg(PolicyCfg):
    """The ``policy`` block of ``actor_critic_recurrent``."""

    actor: MLPCfg | None = None
    """Network from hidden state and observation to the action's mean."""
    critic: MLPCfg | None = None
    """Network from hidden state and observation to the value."""
    hidden_size: PositiveInt = 128
    """S, size of the hidden state."""
    sequence_length: PositiveInt | None = None
    """Steps over which gradients flow back, a divisor of ``trainer.buffer_size``; None: the whole rollout."""


def build_actor_critic_recurrent(
    cfg: ActorCriticRecurrentCfg, given: PolicySpaces, device: torch.device | str, networks: Mapping[str, nn.Module]
) -> ActorCriticRecurrent:
    """Build an ``ActorCriticRecurrent``; see ``build_policy``. ``networks`` replace the block's.

    Raises:
        ConfigError: the block does not fit the spaces, or its parameters the memory.
    """
    actor_columns, critic_columns = (group_columns(cfg, role, given) for role in ("actor", "critic"))
    actor_width, critic_width = (given.obs_dim if x is None else len(x) for x in (actor_columns, critic_columns))
    num_parameters = 3 * cfg.hidden_size * (actor_width + cfg.hidden_size + 2)
    check_memory("policy.hidden_size", f"the {num_parameters:,} parameters of a GRU", 4 * num_parameters)
    actor, critic = networks.get("actor"), networks.get("critic")
    if actor is None:
        assert cfg.actor is not None
        with placed("policy.actor."):
            actor = build_mlp_from_cfg(cfg.actor, cfg.hidden_size + actor_width, given.action_dim, output_gain=0.01)
    if critic is None:
        assert cfg.critic is not None
        with placed("policy.critic."):
            critic = build_mlp_from_cfg(cfg.critic, cfg.hidden_size + critic_width, 1)
    return ActorCriticRecurrent(
        given.obs_dim,
        given.action_dim,
        device,
        nn.GRUCell(actor_width, cfg.hidden_size),
        actor,
        critic,
        cfg.sequence_length,
        actor_columns,
        critic_columns,
        cfg.normalize_obs,
        cfg.init_log_std,
        cfg.log_std_range,
        build_squash(cfg, given),
    )


class ActorCriticRecurrent(GaussianPolicy):
    """An actor-critic with networks that read the observation and the hidden state of a GRU.

    The GRU (Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", 2014) reads the actor's
    observations, so that the policy runs without the critic's. Its initial weights are orthogonal and its biases zero,
    as in Huang et al., "The 37 Implementation Details of Proximal Policy Optimization", 2022. It is trained on
    sequences: each begins with the state that the rollout stored; after each done step the state is zero, and no
    gradient flows back.

    Args:
        memory: the GRU, from the actor's columns of the observation to S.
        actor: [..., S + the actor's columns] -> [..., A], the mean of the action.
        critic: [..., S + the critic's columns] -> [..., 1], the value.
        sequence_length: L; None: the whole rollout.
        actor_columns: columns of the observation that the GRU and the actor read, int64; None: all.
        critic_columns: the critic's columns.
        normalize_obs, init_log_std, log_std_range, squash: arguments as for ``ActorCritic``.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        device: torch.device | str,
        memory: nn.GRUCell,
        actor: nn.Module,
        critic: nn.Module,
        sequence_length: int | None = None,
        actor_columns: torch.Tensor | None = None,
        critic_columns: torch.Tensor | None = None,
        normalize_obs: bool = False,
        init_log_std: float = 0.0,
        log_std_range: tuple[float, float] = LOG_STD_RANGE,
        squash: LinearScale | None = None,
    ) -> None:
        super().__init__(obs_dim, action_dim, normalize_obs, init_log_std, log_std_range, squash)
        self.state_size = memory.hidden_size
        self.sequence_length = sequence_length
        self.actor_obs = nn.Identity() if actor_columns is None else Columns(actor_columns)
        self.critic_obs = nn.Identity() if critic_columns is None else Columns(critic_columns)
        self.memory = memory
        self.actor = actor
        self.critic = critic
        for name, parameter in memory.named_parameters():
            (nn.init.orthogonal_ if name.startswith("weight") else nn.init.zeros_)(parameter)
        self.to(device)

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose actions [N, A] and write ``next_state`` [N, S]; see ``Policy.forward``."""
        obs = self.normalizer(td["obs"])
        seen = self.actor_obs(obs)
        state = self.memory(seen, td["state"])
        td["next_state"] = state
        mean = run_network(self.actor, torch.cat((state, seen), dim=-1), td)
        self._sample(td, mean, deterministic)
        td["value"] = self._value(state, obs, td)
        return td

    def get_value(self, td: TensorDict) -> TensorDict:
        """Write ``value`` [N]; see ``Policy.get_value``."""
        obs = self.normalizer(td["obs"])
        td["value"] = self._value(self.memory(self.actor_obs(obs), td["state"]), obs, td)
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        """Return the actions' log-probability and the states' value, [B, L]; see ``Policy.evaluate_actions``."""
        obs = self.normalizer(td["obs"])
        seen = self.actor_obs(obs)
        states = self._unroll(seen, td["state"][:, 0], td["done"])
        mean = run_network(self.actor, torch.cat((states, seen), dim=-1), td)
        return self._evaluate(td, mean, self._value(states, obs, td))

    def _unroll(self, seen: torch.Tensor, state: torch.Tensor, done: torch.Tensor) -> torch.Tensor:
        """Return the state after each step, [B, L, S], for inputs [B, L, ...], a first state [B, S], done [B, L]."""
        states: list[torch.Tensor] = []
        for seen_t, done_t in zip(seen.unbind(1), done.unsqueeze(-1).unbind(1), strict=True):
            state = self.memory(seen_t, state)
            states.append(state)
            state = state.masked_fill(done_t, 0.0)
        return torch.stack(states, dim=1)

    def _value(self, state: torch.Tensor, obs: torch.Tensor, td: TensorDict) -> torch.Tensor:
        seen = torch.cat((state, self.critic_obs(obs)), dim=-1)
        return run_network(self.critic, seen, td).squeeze(-1)
