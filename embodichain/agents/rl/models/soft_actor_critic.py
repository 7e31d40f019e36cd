"""Policies with critics of actions: SAC's, a squashed Gaussian with a std that depends on the state, and TD3's.

Legend: ... any batch dimensions, O flattened observation size, F features of images (0 without an encoder), A action
size, E critics.
"""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt, ValidationInfo, field_validator
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models import distributions, networks
from embodichain.agents.rl.models.normalizer import RunningNormalizer
from embodichain.agents.rl.models.policy import AscendingRange, Policy, PolicyCfg, PolicySpaces, TypedPolicy
from embodichain.agents.rl.models.squash import LinearScale, TanhSquash
from embodichain.agents.rl.models.value_bins import NUM_BINS, ValueBins
from embodichain.utils import ConfigError, configclass


@configclass
class SoftActorCriticCfg(PolicyCfg):
    """The ``policy`` block of ``soft_actor_critic``."""

    squash: Literal[True] = True
    """Actions are always mapped into the action space's bounds by tanh."""
    actor: networks.NetworkBlock | None = None
    """Network from the observation to mean and log-std of the raw action."""
    critic: networks.NetworkBlock | None = None
    """Network of each critic, from the observation and an action to the action's value."""
    encoder: networks.ImageEncoderCfg | None = None
    """Image encoder shared by actor and critics; the critics' loss alone trains it. Null: networks that read images
    are of type ``cnn``, each with convolutions of its own."""
    slope_floor: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Added to the slope of tanh in log-densities. 0: they are exact, and the entropy pulls back every action, however
    near to its bound. 1e-6 (Stable-Baselines3, CleanRL): it leaves actions there, which helps tasks with the
    bounds as the best actions."""
    num_critics: PositiveInt = 2
    """Critics, which differ in their initial weights."""
    value_range: AscendingRange | None = None
    """Critics learn distributions over 101 bins between these values (HL-Gauss), in the units that they learn in: with
    ``normalize_returns`` the returns' std. Values beyond are clamped, those within a bin of an end biased: choose a
    wider range than the values have. Null: plain values."""


@configclass
class DeterministicActorCriticCfg(SoftActorCriticCfg):
    """The ``policy`` block of ``deterministic_actor_critic``."""

    exploration_std: PositiveFloat = 0.1
    """Std of the normal noise on the actions of a training, scaled to [-1, 1]."""

    @field_validator("init_log_std", "log_std_range", "slope_floor")
    @classmethod
    def _is_not_changed(cls, value: object, info: ValidationInfo) -> object:
        if value != getattr(SoftActorCriticCfg, str(info.field_name)):
            raise ValueError("has no effect on actions without a density: exploration_std is the std of their noise")
        return value


def build_soft_actor_critic(
    cfg: SoftActorCriticCfg, given: PolicySpaces, device: torch.device | str, custom: Mapping[str, nn.Module]
) -> "SoftActorCritic":
    """Build a ``SoftActorCritic``, or the deterministic one of such a block; see ``build_policy``.

    A network ``actor`` replaces the block's.
    """
    if "critic" in custom:
        raise ConfigError(f"policy '{cfg.name}': builds several critics from its block, and takes none")
    assert cfg.critic is not None
    squash = TanhSquash(given.action_space, f"policy.name: {cfg.name}", cfg.slope_floor)
    encoder, num_features = None, 0
    if (block := cfg.encoder) is not None:
        encoder = networks.ImageEncoder(block, networks.image_shapes(block.keys, "policy.encoder.keys", given))
        num_features = block.num_features
    actor = custom.get("actor")
    if actor is None:
        assert cfg.actor is not None
        outputs = given.action_dim if isinstance(cfg, DeterministicActorCriticCfg) else 2 * given.action_dim
        actor = networks.build_network(cfg.actor, "actor", cfg, given, outputs, num_features)
    extra_dim = num_features + given.action_dim
    size = 1 if cfg.value_range is None else NUM_BINS
    critics = [
        networks.build_network(cfg.critic, "critic", cfg, given, size, extra_dim) for _ in range(cfg.num_critics)
    ]
    built = given.obs_dim, given.action_dim, device, actor, critics
    policy: SoftActorCritic
    if isinstance(cfg, DeterministicActorCriticCfg):
        scale = LinearScale(given.action_space)
        policy = DeterministicActorCritic(*built, scale, cfg.normalize_obs, cfg.exploration_std, encoder)
    else:
        settings = cfg.normalize_obs, cfg.init_log_std, cfg.log_std_range
        policy = SoftActorCritic(*built, squash, *settings, encoder)
    if cfg.value_range is not None:
        policy.value_bins = ValueBins(*cfg.value_range).to(device)
    return policy


class SoftActorCritic(Policy):
    """Actions are tanh(u) in the action space's bounds, u normal with mean and std of ``actor(obs)``.

    Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018. It values actions, not states: ``value`` is
    0, as in ``ActorOnly``.

    Args:
        obs_dim: O.
        action_dim: A.
        actor: [..., O + F] -> [..., 2 A], mean of u, and its log-std less ``init_log_std``; a ``CNN`` also gets the
            images.
        critics: E networks [..., O + F + A] -> [..., 1], likewise; MLPs, or SimBa networks, of equal layers compute
            together.
        squash: maps u into the bounds.
        normalize_obs: normalise observations by their running mean and std before all networks.
        init_log_std: log-std for an output of 0.
        log_std_range: lowest and highest log-std.
        encoder: encoder of images to F features, read by actor and critics behind the observation; see ``encode``.
    """

    typed = TypedPolicy(SoftActorCriticCfg, build_soft_actor_critic, ("actor", "critic"))
    evaluates: ClassVar[tuple[str, ...]] = ("log_prob", "entropy")

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        device: torch.device | str,
        actor: nn.Module,
        critics: list[nn.Module],
        squash: LinearScale,
        normalize_obs: bool,
        init_log_std: float,
        log_std_range: tuple[float, float],
        encoder: networks.ImageEncoder | None = None,
    ) -> None:
        super().__init__()
        self.obs_dim = obs_dim
        self.action_dim = action_dim
        self.extra_fields = (("raw_action", action_dim),)
        self.has_normalizer = normalize_obs
        self.normalizer: nn.Module = RunningNormalizer(obs_dim) if normalize_obs else nn.Identity()
        self.encoder = encoder
        self.actor = actor
        # Exact types only: a subclass may override forward.
        mlps = [c for c in critics if isinstance(c, networks.Layers) and type(c) in (networks.MLP, networks.SimBa)]
        are_alike = len(mlps) == len(critics) and len({*map(str, critics)}) == 1
        self.critics = networks.MLPs(mlps) if are_alike else nn.ModuleList(critics)
        self.value_bins: ValueBins | None = None  # of distributional critics, whose outputs are [..., K], not [..., 1]
        self.squash = squash
        self.init_log_std = init_log_std
        self.log_std_range = log_std_range
        self.obs_keys = networks.network_keys(encoder, actor, *critics)
        self.to(device)

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose actions; see ``Policy.forward``. The most likely action is the squashed mean."""
        distributions.sample_gaussian(td, *self._distribution(td), self.squash, deterministic)
        return self.get_value(td)

    def get_value(self, td: TensorDict) -> TensorDict:
        """Write ``value`` [...], 0; see ``Policy.get_value``."""
        td["value"] = td["obs"].new_zeros(td.batch_size, dtype=torch.float32)
        return td

    def evaluate_actions(self, td: TensorDict) -> TensorDict:
        """Return the actions' log-probability and entropy; see ``Policy.evaluate_actions``. There is no ``value``."""
        return TensorDict(
            distributions.evaluate_gaussian(td, *self._distribution(td), self.squash), batch_size=td.batch_size
        )

    def imitation_loss(self, td: TensorDict) -> torch.Tensor:
        """Return the loss of demonstrated actions; see ``Policy.imitation_loss``."""
        return super().imitation_loss(distributions.with_raw_action(td, self.squash))

    def encode(self, td: TensorDict) -> TensorDict:
        """Return ``forward``'s input with the networks' own, ``encoded`` [..., O + F]; ``td`` is not changed.

        ``sample`` and ``action_values`` read ``encoded`` if it is there: images are then encoded once for all networks.
        """
        return td.copy().set("encoded", self._encoded(td))

    def sample(self, td: TensorDict) -> tuple[torch.Tensor, torch.Tensor]:
        """Return sampled actions scaled to [-1, 1], [..., A], and their log pi [...], for ``forward``'s input.

        The samples are reparameterised, with gradients: u = mean + std * noise. The entropy -log pi of scaled actions
        does not depend on the units of actions, and so neither do soft values. ``forward`` writes the log-density in
        these units, which is less by the sum of log half-range.
        """
        assert isinstance(self.squash, TanhSquash)
        return distributions.sample_tanh(*self._distribution(td), self.squash)

    def action_values(self, td: TensorDict, scaled: torch.Tensor, critics: nn.Module | None = None) -> torch.Tensor:
        """Return Q(s, a) [E, ...] for actions scaled to [-1, 1], by the policy's critics or copies of them."""
        return self.values_of(self.critic_outputs(td, scaled, critics))

    def critic_outputs(self, td: TensorDict, scaled: torch.Tensor, critics: nn.Module | None = None) -> torch.Tensor:
        """Return the outputs of each critic, [E, ..., 1] or [E, ..., K]; arguments as of ``action_values``."""
        given, critics = torch.cat((self._encoded(td), scaled), dim=-1), critics or self.critics
        if isinstance(critics, networks.MLPs):
            out: torch.Tensor = critics(given).float()
            return out
        return torch.stack([networks.run_network(critic, given, td) for critic in critics.children()])

    def values_of(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the values [E, ...] of the critics' outputs."""
        values: torch.Tensor = outputs.squeeze(-1) if self.value_bins is None else self.value_bins(outputs)
        return values

    def scaled(self, action: torch.Tensor) -> torch.Tensor:
        """Return actions [..., A] scaled to [-1, 1], as critics read them: bounds may be of any size."""
        return (action - self.squash.centre) / self.squash.half_range

    def _distribution(self, td: TensorDict) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and log-std of the raw action, [..., A] each."""
        mean, log_std = networks.run_network(self.actor, self._encoded(td), td).chunk(2, dim=-1)
        return mean, distributions.bounded(log_std + self.init_log_std, *self.log_std_range)

    def _encoded(self, td: TensorDict) -> torch.Tensor:
        """Return the features that ``encode`` has written, or would write."""
        known: torch.Tensor | None = td.get("encoded", None)
        if known is not None:
            return known
        obs: torch.Tensor = self.normalizer(td["obs"])
        return obs if self.encoder is None else torch.cat((obs, self.encoder(td["entries"])), dim=-1)


class DeterministicActorCritic(SoftActorCritic):
    """Actions are tanh(``actor(obs)``) in the action space's bounds; a training adds normal noise.

    Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods", 2018. Noisy actions are clipped
    to the bounds. Until TD3 has made its first gradient step, the actions of a training are uniform in them. The
    log-probabilities are of the noise alone.

    Args:
        exploration_std: std of the noise on actions scaled to [-1, 1]; other arguments as of ``SoftActorCritic``, but
            the actor's output is [..., A].
    """

    typed = TypedPolicy(DeterministicActorCriticCfg, build_soft_actor_critic, ("actor", "critic"))
    evaluates = ()
    is_trained: torch.Tensor  # bool []

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        device: torch.device | str,
        actor: nn.Module,
        critics: list[nn.Module],
        scale: LinearScale,
        normalize_obs: bool,
        exploration_std: float = 0.1,
        encoder: networks.ImageEncoder | None = None,
    ) -> None:
        log_std = math.log(exploration_std)
        settings = normalize_obs, log_std, (log_std, log_std), encoder
        super().__init__(obs_dim, action_dim, device, actor, critics, scale, *settings)
        self.register_buffer("is_trained", torch.zeros((), dtype=torch.bool, device=device))

    def forward(self, td: TensorDict, deterministic: bool = False) -> TensorDict:
        """Choose actions; see ``Policy.forward``."""
        super().forward(td, deterministic)
        if not deterministic:
            noisy = td["raw_action"].clamp(-1, 1)
            td["raw_action"] = torch.where(self.is_trained, noisy, torch.empty_like(noisy).uniform_(-1, 1))
            td["action"] = self.squash(td["raw_action"])
        return td

    def choose(self, td: TensorDict, actor: nn.Module | None = None) -> torch.Tensor:
        """Return the actions without noise, [..., A] in [-1, 1], with gradients, of the actor or of a copy of it."""
        return networks.run_network(actor or self.actor, self._encoded(td), td).tanh()

    def _distribution(self, td: TensorDict) -> tuple[torch.Tensor, torch.Tensor]:
        mean = self.choose(td)
        return mean, torch.full_like(mean, self.init_log_std)
