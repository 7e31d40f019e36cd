"""What the config of every environment has."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

from pydantic import Field

from embodichain.lab.sim import SimulationManagerCfg
from embodichain.utils import configclass

__all__ = ["EnvCfg"]


@configclass
class EnvCfg:
    """What every environment has."""

    num_envs: Annotated[int, Field(ge=1)] = 1
    """Environments simulated side by side; overrides ``sim_cfg.num_envs``."""
    sim_cfg: SimulationManagerCfg = field(default_factory=SimulationManagerCfg)
    """The simulation."""
    seed: int = 1
    """Of the environments' random streams."""
    sim_steps_per_control: Annotated[int, Field(ge=1)] = 4
    """Physics substeps in one step of the environment."""
    max_episode_steps: Annotated[int, Field(ge=1)] | None = None
    """Time limit in steps; None: the registered one, or no limit."""
    group_size: Annotated[int, Field(ge=1)] = 1
    """Environments of the same i // group_size share all random draws, and so begin their episodes alike; 1: each has
    its own. A training takes it from the algorithm."""
    first_env_id: Annotated[int, Field(ge=0)] = 0
    """Global id of the first environment, of which the random streams depend. The processes of a distributed training,
    and the groups of asynchronous collection, number their environments through; a training sets it."""
