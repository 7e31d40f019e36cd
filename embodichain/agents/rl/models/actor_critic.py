"""The policies of normal or discrete actions: with a critic, without one, and recurrent.

Legend: ... any batch dimensions, N environments, B sequences, L steps of a sequence, O flattened observation size, A
action size, S state size, H actions of a chunk.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import PositiveInt
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models import distributions, networks
from embodichain.agents.rl.models.normalizer import RunningNormalizer
from embodichain.agents.rl.models.policy import Policy, PolicyCfg, PolicySpaces, TypedPolicy
from embodichain.agents.rl.models.squash import LinearScale, TanhSquash
from embodichain.utils import ConfigError, configclass, placed
from embodichain.utils.choices import ACTION_MASK, sizes_of
from embodichain.utils.device import check_memory


@configclass
class ActorOnlyCfg(PolicyCfg):
    """The ``policy`` block of ``actor_only``."""

    actor: networks.NetworkBlock | None = None
    """Network from the observation to the action's mean, or to the logits of discrete actions."""
    chunk_length: PositiveInt = 1
    """Actions chosen at a time, and executed before the next choice; ``trainer.buffer_size`` must be a multiple."""


@configclass
class ActorCriticCfg(ActorOnlyCfg):
    """The ``policy`` block of ``actor_critic``."""

    critic: networks.NetworkBlock | None = None
    """Network from the observation to the value."""


def build_actor_critic(
    cfg: ActorOnlyCfg, given: PolicySpaces, device: torch.device | str, custom: Mapping[str, nn.Module]
) -> "ActorCritic":
    """Build an ``ActorCritic`` or ``ActorOnly``; see ``build_policy``. ``custom`` networks replace the block's."""
    actor, critic = custom.get("actor"), custom.get("critic")
    if actor is None:
        assert cfg.actor is not None
        actor = networks.build_network(cfg.actor, "actor", cfg, given, cfg.chunk_length * given.actor_outputs)
    settings = _settings(cfg, given) | {"chunk_length": cfg.chunk_length}
    if not isinstance(cfg, ActorCriticCfg):
        return ActorOnly(given.obs_dim, given.action_dim, device, actor, **settings)
    if critic is None:
        assert cfg.critic is not None
        critic = networks.build_network(cfg.critic, "critic", cfg, given, 1)
    return ActorCritic(given.obs_dim, given.action_dim, device, actor, critic, **settings)


def _settings(cfg: PolicyCfg, given: PolicySpaces) -> dict[str, Any]:
    """Return the settings of a block that all of these policies have."""
    settings = {name: getattr(cfg, name) for name in ("normalize_obs", "init_log_std", "log_std_range")}
    if cfg.squash:
        return settings | {"squash": TanhSquash(given.action_space)}
    if choices := sizes_of(given.action_space):
        return settings | {"choices": choices, "has_mask": given.has_action_mask}
    return settings | {"squash": LinearScale(given.action_space) if cfg.scale_actions else None}


class StochasticPolicy(Policy):
    """Draws actions from a distribution whose parameters a subclass computes, the actor's output.

    Actions are normal around a mean, with a learned std that is the same in all states, or are choices by logits.

    Args:
        obs_dim: O.
        action_dim: A.
        normalize_obs: normalise observations by their running mean and std before all networks.
        init_log_std: initial log-std of every action component.
        log_std_range: lowest and highest log-std.
        squash: maps the normal sample to the action space's bounds; the log-probability is then the mapped
            action's, and the sample is stored as ``raw_action``.
        chunk_length: H; see ``Policy.chunk_length``.
        choices: the numbers of possibilities n_1, ..., n_A of discrete actions; empty: actions are normal.
        has_mask: whether the observation's entry ``action_mask`` [..., n_1 + ... + n_A] says which possibilities there
            are.
    """

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        normalize_obs: bool = False,
        init_log_std: float = 0.0,
        log_std_range: tuple[float, float] = distributions.LOG_STD_RANGE,
        squash: LinearScale | None = None,
        chunk_length: int = 1,
        choices: tuple[int, ...] = (),
        has_mask: bool = False,
    ) -> None:
        super().__init__()
        self.obs_dim = obs_dim
        self.action_dim = action_dim
        self.chunk_length = chunk_length
        size = chunk_length * action_dim
        self.extra_fields = (("raw_action", size),) if squash is not None else ()
        self.has_normalizer = normalize_obs
        self.normalizer: nn.Module = RunningNormalizer(obs_dim) if normalize_obs else nn.Identity()
        self.choices = choices
        self.obs_keys = (ACTION_MASK,) if has_mask else ()
        if choices:
            if chunk_length > 1:
                raise ConfigError("policy.chunk_length: discrete actions are chosen one at a time")
            self.distribution_fields = ("log_probs",)
        else:
            self.log_std = nn.Parameter(torch.full((size,), float(init_log_std)))
        self.log_std_range = log_std_range
        self.squash = squash

    def imitation_loss(self, td: TensorDict) -> torch.Tensor:
        """Return the loss of demonstrated actions; see ``Policy.imitation_loss``."""
        return super().imitation_loss(distributions.with_raw_action(td, self.squash))

    @torch.no_grad()
    def diagnostics(self) -> dict[str, torch.Tensor]:
        """Return ``std``, the mean std of the components of normal actions (of the raw ones with ``squash``)."""
        return {} if self.choices else {"std": self._bounded_log_std().exp().mean()}

    def kl_divergence(self, old: Mapping[str, torch.Tensor], new: TensorDict) -> torch.Tensor:
        """Return KL(old || new) [...]; see ``Policy.kl_divergence``."""
        if self.choices:
            return distributions.choice_kl(old["log_probs"], new["log_probs"])
        return super().kl_divergence(old, new)

    def _sample(self, td: TensorDict, output: torch.Tensor, deterministic: bool) -> None:
        """Write the fields of sampled actions for the actor's output [..., A], with chunks [..., H A], or logits."""
        if self.choices:
            return distributions.sample_choices(td, self._log_probs(td, output), self.choices, deterministic)
        return distributions.sample_gaussian(
            td, output, self._bounded_log_std(), self.squash, deterministic, self.chunk_length
        )

    def _evaluate(self, td: TensorDict, output: torch.Tensor, value: torch.Tensor) -> TensorDict:
        """Return the result of ``evaluate_actions`` for the actor's output and values [...]."""
        if self.choices:
            out = distributions.evaluate_choices(td, self._log_probs(td, output), self.choices)
        else:
            out = distributions.evaluate_gaussian(td, output, self._bounded_log_std(), self.squash, self.chunk_length)
        return TensorDict({**out, "value": value}, batch_size=td.batch_size)

    def _log_probs(self, td: TensorDict, logits: torch.Tensor) -> torch.Tensor:
        mask = td["entries", ACTION_MASK] if ACTION_MASK in self.obs_keys else None
        return distributions.choice_log_probs(logits, self.choices, mask)

    def _bounded_log_std(self) -> torch.Tensor:
        return distributions.bounded(self.log_std, *self.log_std_range)


class ActorCritic(StochasticPolicy):
    """Actions are normal around ``actor(obs)``, or discrete with these logits.

    Without ``squash`` actions are not clipped here: the log-probability is the raw sample's, and the environment clips.

    Args:
        actor: [..., O] -> [..., A], with chunks [..., H A], the mean of the action; a ``CNN`` also gets the images.
        critic: [..., O] -> [..., 1], the value; likewise. None: every value is 0; see ``ActorOnly``.
        settings: arguments of ``StochasticPolicy``.
    """

    typed = TypedPolicy(ActorCriticCfg, build_actor_critic, ("actor", "critic"))

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        device: torch.device | str,
        actor: nn.Module,
        critic: nn.Module | None,
        **settings: Any,
    ) -> None:
        super().__init__(obs_dim, action_dim, **settings)
        self.actor = actor
        self.critic: Any = critic  # a network; None without one
        self.obs_keys += networks.network_keys(actor, critic)
        self.to(device)

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose actions; see ``Policy.forward``. The most likely action is the mean, or the squashed mean."""
        obs = self.normalizer(td["obs"])
        self._sample(td, networks.run_network(self.actor, obs, td), deterministic)
        td["value"] = self._value(obs, td)
        return td

    def get_value(self, td: TensorDict) -> TensorDict:
        """Write ``value`` [...]; see ``Policy.get_value``."""
        td["value"] = self._value(self.normalizer(td["obs"]), td)
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        """Return the actions' log-probability and the states' value; see ``Policy.evaluate_actions``."""
        obs = self.normalizer(td["obs"])
        return self._evaluate(td, networks.run_network(self.actor, obs, td), self._value(obs, td))

    def _value(self, obs: torch.Tensor, td: TensorDict) -> torch.Tensor:
        if self.critic is None:
            return obs.new_zeros(obs.shape[:-1])
        return networks.run_network(self.critic, obs, td).squeeze(-1)


class ActorOnly(ActorCritic):
    """An ``ActorCritic`` without a critic, with values 0: for algorithms without one."""

    typed = TypedPolicy(ActorOnlyCfg, build_actor_critic, ("actor",))
    evaluates: ClassVar[tuple[str, ...]] = ("log_prob", "entropy")

    def __init__(
        self, obs_dim: int, action_dim: int, device: torch.device | str, actor: nn.Module, **settings: Any
    ) -> None:
        super().__init__(obs_dim, action_dim, device, actor, None, **settings)


@configclass
class ActorCriticRecurrentCfg(PolicyCfg):
    """The ``policy`` block of ``actor_critic_recurrent``."""

    actor: networks.MLPCfg | None = None
    """Network from hidden state and observation to the action's mean."""
    critic: networks.MLPCfg | None = None
    """Network from hidden state and observation to the value."""
    hidden_size: PositiveInt = 128
    """S, size of the hidden state."""
    sequence_length: PositiveInt | None = None
    """Steps over which gradients flow back, a divisor of ``trainer.buffer_size``; None: the whole rollout."""


def build_actor_critic_recurrent(
    cfg: ActorCriticRecurrentCfg, given: PolicySpaces, device: torch.device | str, custom: Mapping[str, nn.Module]
) -> "ActorCriticRecurrent":
    """Build an ``ActorCriticRecurrent``; see ``build_policy``. ``custom`` networks replace the block's."""
    actor_columns, critic_columns = (networks.group_columns(cfg, role, given) for role in ("actor", "critic"))
    actor_width, critic_width = (given.obs_dim if x is None else len(x) for x in (actor_columns, critic_columns))
    if 0 in (actor_width, critic_width):
        raise ConfigError("policy.obs_groups: there is no entry to read but images, which this policy does not read")
    num_parameters = 3 * cfg.hidden_size * (actor_width + cfg.hidden_size + 2)
    check_memory("policy.hidden_size", f"the {num_parameters:,} parameters of a GRU", 4 * num_parameters)
    actor, critic = custom.get("actor"), custom.get("critic")
    if actor is None:
        assert cfg.actor is not None
        with placed("policy.actor."):
            actor = networks.build_mlp_from_cfg(
                cfg.actor, cfg.hidden_size + actor_width, given.actor_outputs, output_gain=0.01
            )
    if critic is None:
        assert cfg.critic is not None
        with placed("policy.critic."):
            critic = networks.build_mlp_from_cfg(cfg.critic, cfg.hidden_size + critic_width, 1)
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
        **_settings(cfg, given),
    )


class ActorCriticRecurrent(StochasticPolicy):
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
        settings: arguments of ``StochasticPolicy``.
    """

    typed = TypedPolicy(ActorCriticRecurrentCfg, build_actor_critic_recurrent, ("actor", "critic"))

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
        **settings: Any,
    ) -> None:
        super().__init__(obs_dim, action_dim, **settings)
        self.state_size = memory.hidden_size
        self.sequence_length = sequence_length
        self.actor_obs = nn.Identity() if actor_columns is None else networks.Columns(actor_columns)
        self.critic_obs = nn.Identity() if critic_columns is None else networks.Columns(critic_columns)
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
        mean = networks.run_network(self.actor, torch.cat((state, seen), dim=-1), td)
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
        mean = networks.run_network(self.actor, torch.cat((states, seen), dim=-1), td)
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
        return networks.run_network(self.critic, seen, td).squeeze(-1)
