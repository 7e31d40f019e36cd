"""The base of our vision-language-action models: config, observation entries, normally distributed actions.

Legend: B batch, H steps of an action chunk, A action size, J size of the state.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

import torch
from gymnasium import spaces
from pydantic import Field, PositiveInt, model_validator
from tensordict import TensorDict
from torch import nn

from embodichain.agents.rl.models.distributions import bounded, component_entropy, component_log_prob
from embodichain.lab.gym.utils.instructions import INSTRUCTION_LENGTH
from embodichain.utils import ConfigError, configclass, field, observations, unknown_name

IMAGE, STATE, INSTRUCTION = "image/", "state", "instruction"
"""Names of the observation's entries; a camera's name follows "image/"."""


@configclass
class GaussianVLACfg:
    """The part of a ``model_config`` that our models share; values of the environment may be left out."""

    cameras: Annotated[list[str], Field(min_length=1)] = field(kw_only=True)
    """Names of the images, without ``image/``. From the environment: all."""
    image_size: tuple[PositiveInt, PositiveInt] = field(kw_only=True)
    """Height and width of every image, pixels. From the environment."""
    state_dim: PositiveInt = field(kw_only=True)
    """J. From the environment."""
    action_dim: PositiveInt = field(kw_only=True)
    """A. From the environment."""
    instruction_length: PositiveInt = INSTRUCTION_LENGTH
    """L. From the environment."""
    chunk_length: PositiveInt = 8
    """H."""
    bf16: bool = False
    """Compute the network in bfloat16; distributions and values stay float32."""
    init_log_std: float = -1.0
    """Initial log-std of every action."""
    log_std_range: tuple[float, float] = (-1.6, 0.5)
    """Lowest and highest log-std; the lowest keeps some exploration."""

    @model_validator(mode="after")
    def _is_in_range(self) -> Self:
        low, high = self.log_std_range
        if not low < high or not low <= self.init_log_std <= high:
            raise ValueError(f"init_log_std {self.init_log_std} must lie in log_std_range [{low}, {high}], not empty")
        return self


class GaussianVLA(nn.Module):
    """The observation's entries, the learned stds of the actions, and the normalisation of the robot's state."""

    state_mean: torch.Tensor  # [J]
    state_std: torch.Tensor  # [J]

    def __init__(self, cfg: GaussianVLACfg) -> None:
        super().__init__()
        self.chunk_length, self.action_dim = cfg.chunk_length, cfg.action_dim
        self.image_keys = tuple(IMAGE + name for name in cfg.cameras)
        self.observation_keys = (*dict.fromkeys(self.image_keys), STATE, INSTRUCTION)
        self._log_std_range = cfg.log_std_range
        self.log_std = nn.Parameter(torch.full((cfg.chunk_length, cfg.action_dim), cfg.init_log_std))
        self.register_buffer("state_mean", torch.zeros(cfg.state_dim))
        self.register_buffer("state_std", torch.ones(cfg.state_dim))

    @classmethod
    def config_for(cls, observation_space: spaces.Dict, action_dim: int) -> dict[str, Any]:
        """Return the part of the config that follows from one environment's spaces."""
        entries = observations.entry_spaces(observation_space)
        images = {name.removeprefix(IMAGE): space.shape for name, space in entries.items() if name.startswith(IMAGE)}
        missing = [name for name in (STATE, INSTRUCTION) if name not in entries] + ["image/<camera>"] * (not images)
        if missing:
            raise ConfigError(
                f"{cls.__name__} reads {', '.join(missing)}, the observation has only {', '.join(entries)}"
            )
        if len(set(images.values())) > 1:
            raise ConfigError(f"{cls.__name__}'s images must be of one size, got {images}")
        height, width, _ = next(iter(images.values()))
        return {
            "cameras": list(images),
            "image_size": [height, width],
            "state_dim": entries[STATE].shape[0],
            "instruction_length": entries[INSTRUCTION].shape[0],
            "action_dim": action_dim,
        }

    def fit_inputs(self, state: torch.Tensor) -> None:
        """Normalise states by the mean and std of states [M, J] from now on."""
        self.state_mean.copy_(state.mean(0))
        self.state_std.copy_(state.std(0, correction=0).clamp(min=1e-3))  # also of a single frame

    def std(self) -> torch.Tensor:
        """Return the actions' std, [H, A]."""
        return self.bounded_log_std().exp()

    def bounded_log_std(self) -> torch.Tensor:
        """Return the actions' log-std, [H, A]."""
        return bounded(self.log_std, *self._log_std_range)

    def normalized(self, state: torch.Tensor) -> torch.Tensor:
        """Return states [B, J] normalised by the statistics of ``fit_inputs``."""
        return (state - self.state_mean) / self.state_std

    def choose(self, mean: torch.Tensor, deterministic: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Sample actions around a mean; return them and the log-probability of each component, all [B, H, A]."""
        log_std = self.bounded_log_std()
        action = mean if deterministic else torch.addcmul(mean, log_std.exp(), torch.randn_like(mean))
        return action, component_log_prob(action, mean, log_std)

    def judge(self, actions: torch.Tensor, mean: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities and entropies (nats) of actions around a mean, all [B, H, A]."""
        log_std = self.bounded_log_std()
        return component_log_prob(actions, mean, log_std), component_entropy(log_std).expand_as(mean)


def vla_observation(
    obs: Mapping[str, Any] | TensorDict, keys: Sequence[str], device: torch.device
) -> dict[str, torch.Tensor]:
    """Return the entries ``keys`` of an observation by their slash-separated names, as tensors [B, ...] on a device.

    Args:
        obs: a dictionary or TensorDict of tensors or arrays; ``image/front`` may be an entry of that name, or ``front``
            inside ``image``.
    """
    flat = (obs if isinstance(obs, TensorDict) else TensorDict(dict(obs), batch_size=[])).flatten_keys("/")
    for key in keys:
        if key not in flat.keys():  # noqa: SIM118 (a TensorDict)
            raise ConfigError(unknown_name("entry of the observation", key, map(str, flat.keys())))
    return {key: flat[key].to(device) for key in keys}
