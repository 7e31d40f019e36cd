"""The common part of the built-in policies' config blocks, and building their networks.

Legend: ... any batch dimensions, O flattened observation size, A action size.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, TypeVar

import torch
from gymnasium import spaces
from pydantic import Discriminator, Field, PositiveInt, Tag, ValidationInfo, field_validator
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models.distributions import LOG_STD_RANGE
from embodichain.agents.rl.models.networks import CNN, CNNCfg, ImageEncoder, MLPCfg, build_mlp_from_cfg
from embodichain.agents.rl.models.squash import LinearScale, TanhSquash
from embodichain.utils import ConfigError, configclass, doors, placed, unknown_name
from embodichain.utils.module_utils import check_free
from embodichain.utils.observations import entry_columns, entry_spaces

N = TypeVar("N", bound=type[nn.Module])

_NETWORKS: dict[str, type[nn.Module]] = {}
BUILT_IN = ("mlp", "cnn")
# Gains of the last layers where orthogonal_init is on; see MLP.
_OUTPUT_GAINS = {"actor": 0.01, "critic": 1.0}


@configclass
class NetworkTypeCfg:
    """The block of a registered network: ``{"type": "residual", "network_cfg": {...}}``."""

    type: Annotated[str, Field(json_schema_extra={"not": {"enum": [*BUILT_IN]}})]
    """A registered name."""
    network_cfg: dict[str, Any] = {}
    """Arguments of the network's class, without ``in_dim`` and ``out_dim``."""

    @field_validator("type")
    @classmethod
    def _is_known(cls, value: str) -> str:
        get_network_class(value)
        return value

    @field_validator("network_cfg")
    @classmethod
    def _are_arguments(cls, value: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "type" in info.data:
            try:
                inspect.signature(get_network_class(info.data["type"])).bind(0, 0, **value)
            except TypeError as error:
                raise ValueError(str(error)) from error
        return value


def register_network(name: str, override: bool = False) -> Callable[[N], N]:
    """Register the decorated module for ``actor.type`` and ``critic.type``.

    The class is built as ``cls(in_dim, out_dim, **network_cfg)`` and maps [..., in_dim] to [..., out_dim].

    Args:
        override: replace another class of this name.
    """

    def register(cls: N) -> N:
        if name in BUILT_IN:
            raise ConfigError(f"network '{name}': is the name of a built-in network")
        if not override:
            check_free(_NETWORKS, name, cls, "network")
        _NETWORKS[name] = cls
        return cls

    return register


def get_registered_network_names() -> list[str]:
    """Return the names that ``actor.type`` may have, sorted."""
    return sorted({*BUILT_IN, *_NETWORKS, *doors.entries(doors.NETWORKS)})


def get_network_class(name: str) -> type[nn.Module]:
    """Return the class of a registered name."""
    if name not in _NETWORKS:
        if (found := doors.load(doors.NETWORKS, name)) is None:
            raise ConfigError(unknown_name("network type", name, get_registered_network_names()))
        register_network(name)(found)
    return _NETWORKS[name]


def _kind(block: Any) -> str:
    kind = block.get("type", "mlp") if isinstance(block, Mapping) else getattr(block, "type", "mlp")
    return kind if kind in BUILT_IN else "registered"


NetworkBlock = Annotated[
    Annotated[MLPCfg, Tag("mlp")] | Annotated[CNNCfg, Tag("cnn")] | Annotated[NetworkTypeCfg, Tag("registered")],
    Discriminator(_kind),
]
"""An ``actor`` or ``critic`` block."""


@configclass
class ObsGroupsCfg:
    """Entries of the observation that each network reads, as names or ``fnmatch`` patterns (``robot/*``)."""

    actor: list[str] = ["*"]
    """The actor's entries."""
    critic: list[str] = ["*"]
    """The critic's entries, only needed in training: the robot may be unable to measure them."""


@configclass
class PolicyCfg:
    """The common keys of the ``policy`` blocks of all built-in Gaussian policies."""

    name: str
    """A registered name, or the dotted path of a class."""
    action_dim: PositiveInt | None = None
    """Action size; inferred from the environment, and checked against it when given."""
    normalize_obs: bool = True
    """Normalise the flat observation by its running mean and std. A network that reads joint efforts of hundreds of Nm
    as they are saturates."""
    log_std_range: tuple[float, float] = LOG_STD_RANGE
    """Lowest and highest log-std."""
    init_log_std: Annotated[float, Field(validate_default=True)] = 0.0
    """Initial log-std of the action."""
    squash: bool = False
    """Map actions into the action space's bounds by tanh, instead of clipping by the environment."""
    scale_actions: bool | None = None
    """Without ``squash``, map the policy's actions linearly from [-1, 1] to the action space's finite bounds; the
    environment clips actions beyond. Null: in Gymnasium environments alone."""
    obs_groups: ObsGroupsCfg = ObsGroupsCfg()
    """Entries of the flat observation that each network reads; by default all."""
    init_from: str | None = None
    """Begin a training with the parameters and input statistics of a run: its folder, without date and time the latest
    of this name, ``<folder>/best`` or a checkpoint's file. Policies without a critic load the actor alone. Resuming
    does not read it again."""

    @field_validator("log_std_range")
    @classmethod
    def _ordered(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not value[0] < value[1]:
            raise ValueError("the lowest must be below the highest")
        return value

    @field_validator("init_log_std")
    @classmethod
    def _within_range(cls, value: float, info: ValidationInfo) -> float:
        low, high = info.data.get("log_std_range", (value, value))  # absent if it is invalid
        if not low <= value <= high:
            raise ValueError(f"{value} is outside log_std_range [{low}, {high}]")
        return value


@dataclass(frozen=True)
class PolicySpaces:
    """An environment's spaces.

    Attributes:
        obs_dim: O.
        action_dim: A.
        action_space: one environment's action space, or A.
        observation_space: one environment's structured space, if known.
    """

    obs_dim: int
    action_dim: int
    action_space: spaces.Space[Any] | int
    observation_space: spaces.Dict | None

    def structured(self, place: str) -> spaces.Dict:
        """Return the structured observation space, needed by ``place`` in the config."""
        if self.observation_space is None:
            raise ConfigError(f"{place}: needs the environment's structured observation space (observation_space)")
        return self.observation_space


def space_size(space: spaces.Space[Any] | int) -> int:
    """Return the last dimension of a space, or the number itself."""
    if isinstance(space, int):
        return space
    assert space.shape is not None  # it is a Box
    return space.shape[-1]


def build_network(
    cfg: MLPCfg | CNNCfg | NetworkTypeCfg,
    role: Literal["actor", "critic"],
    policy: PolicyCfg,
    given: PolicySpaces,
    out_dim: int,
    extra_dim: int = 0,
) -> nn.Module:
    """Build an actor or critic for ``run_network`` from its block ``cfg`` in the block ``policy``.

    Args:
        extra_dim: columns that it reads behind the flat observation, such as an action's.
    """
    columns = group_columns(policy, role, given)
    if columns is not None and extra_dim:
        columns = torch.cat((columns, torch.arange(given.obs_dim, given.obs_dim + extra_dim)))
    in_dim = given.obs_dim + extra_dim if columns is None else len(columns)
    select = None if columns is None else Columns(columns)
    if isinstance(cfg, CNNCfg):
        shapes = image_shapes(cfg.keys, f"policy.{role}.keys", given)
        with placed(f"policy.{role}: "):
            return CNN(cfg, shapes, in_dim, out_dim, _OUTPUT_GAINS[role], select)
    if in_dim == 0:
        raise ConfigError(f"policy.{role}: there is no entry to read but images, which take a network of type 'cnn'")
    network: nn.Module
    with placed(f"policy.{role}."):
        if isinstance(cfg, NetworkTypeCfg):
            network = get_network_class(cfg.type)(in_dim, out_dim, **cfg.network_cfg)
        else:
            network = build_mlp_from_cfg(cfg, in_dim, out_dim, output_gain=_OUTPUT_GAINS[role])
    return network if select is None else nn.Sequential(select, network)


def build_squash(cfg: PolicyCfg, given: PolicySpaces) -> LinearScale | None:
    """Build the map from a Gaussian policy's samples to actions; None: identity."""
    if cfg.squash:
        return TanhSquash(given.action_space)
    return LinearScale(given.action_space) if cfg.scale_actions else None


def group_columns(policy: PolicyCfg, role: Literal["actor", "critic"], given: PolicySpaces) -> torch.Tensor | None:
    """Return the columns of the flat observation in an observation group, int64, or None for all."""
    patterns = policy.obs_groups.actor if role == "actor" else policy.obs_groups.critic
    if "*" in patterns:
        return None
    place = f"policy.obs_groups.{role}"
    columns = entry_columns(given.structured(place))
    for i, pattern in enumerate(patterns):
        if not any(fnmatchcase(name, pattern) for name in columns):
            raise ConfigError(f"{place}[{i}]: {unknown_name('entry or pattern', pattern, columns)}")
    chosen = [x for name, x in columns.items() if any(fnmatchcase(name, pattern) for pattern in patterns)]
    return torch.tensor([i for x in chosen for i in range(x.start, x.stop)], dtype=torch.int64)


def run_network(network: nn.Module, obs: torch.Tensor, td: TensorDict) -> torch.Tensor:
    """Return a network's output [..., out] for the flat observation [..., O], and its images in ``td``.

    It is float32 with every ``trainer.precision``.
    """
    out: torch.Tensor = network(obs, td["entries"]) if isinstance(network, CNN) else network(obs)
    return out.float()


def network_keys(*networks: nn.Module) -> tuple[str, ...]:
    """Return the unique entries that networks read in addition to the flat observation."""
    readers = [network for network in networks if isinstance(network, CNN | ImageEncoder)]
    return tuple(dict.fromkeys(key for network in readers for key in network.keys))


class Columns(nn.Module):
    """Selects columns (int64) of the flat observation: [..., O] -> [..., len(columns)]."""

    columns: torch.Tensor

    def __init__(self, columns: torch.Tensor) -> None:
        super().__init__()
        # Not in the state dict: they are the environment's.
        self.register_buffer("columns", columns, persistent=False)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the columns."""
        return obs[..., self.columns]


def image_shapes(keys: Sequence[str], place: str, given: PolicySpaces) -> dict[str, tuple[int, int, int]]:
    """Return (height, width, channels) of images of the observation, by name."""
    entries = entry_spaces(given.structured(place))
    images = {name: space.shape for name, space in entries.items() if len(space.shape) == 3}
    if unknown := [key for key in keys if key not in images]:
        raise ConfigError(f"{place}: {unknown_name('image', unknown[0], images)}")
    return {key: images[key] for key in keys}
