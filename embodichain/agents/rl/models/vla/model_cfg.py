"""What all our vision-language-action models have: what they are told about the environment, and what they read."""

from __future__ import annotations

from typing import Annotated, Any

from gymnasium import spaces
from pydantic import Field, PositiveInt
from torch import nn

from embodichain.agents.rl.models.vla.observation import IMAGE, INSTRUCTION, STATE
from embodichain.utils import ConfigError, configclass
from embodichain.utils.configclass import field
from embodichain.utils.instructions import INSTRUCTION_LENGTH
from embodichain.utils.observations import entry_spaces

__all__ = ["VLAModel", "VLAModelCfg"]


@configclass
class VLAModelCfg:
    """The part of a ``model_config`` that these models share; what the environment says need not be given."""

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


class VLAModel(nn.Module):
    """What it reads and how it is sized.

    Args:
        cfg: says it.
    """

    def __init__(self, cfg: VLAModelCfg) -> None:
        super().__init__()
        self.chunk_length, self.action_dim = cfg.chunk_length, cfg.action_dim
        self.image_keys = tuple(IMAGE + name for name in cfg.cameras)
        self.observation_keys = (*self.image_keys, STATE, INSTRUCTION)

    @classmethod
    def config_for(cls, observation_space: spaces.Dict, action_dim: int) -> dict[str, Any]:
        """Return what of the config follows from an environment.

        Args:
            observation_space: of one environment.
            action_dim: A.

        Raises:
            ConfigError: its observation lacks an entry, or its images differ in size.
        """
        entries = entry_spaces(observation_space)
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
