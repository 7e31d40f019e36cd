"""The environments' typed configs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Annotated, Any

from pydantic import Field

from embodichain.lab.gym.envs.managers.cfg import ActionTermCfg, DatasetCfg, EventCfg, ObservationCfg, RewardCfg
from embodichain.lab.sim import SimulationManagerCfg
from embodichain.lab.sim.cfg import ArticulationCfg, LightsCfg, RigidObjectCfg, RigidObjectGroupCfg, RobotCfg
from embodichain.lab.sim.sensors import SensorCfg
from embodichain.utils import ConfigError, configclass
from embodichain.utils.errors import unknown_name

__all__ = ["EmbodiedEnvCfg", "EnvCfg", "check_groups", "check_parts"]


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


@configclass
class EmbodiedEnvCfg(EnvCfg):
    """Everything that an ``env`` config file says."""

    robot: RobotCfg | None = None
    """The robot that acts."""
    rigid_object: list[RigidObjectCfg] = []
    """Rigid bodies."""
    background: list[RigidObjectCfg] = []
    """Rigid bodies that never move, such as tables."""
    articulation: list[ArticulationCfg] = []
    """Articulations beside the robot."""
    rigid_object_group: list[RigidObjectGroupCfg] = []
    """Groups of rigid bodies."""
    sensor: list[SensorCfg] = []
    """Cameras; their images are ``sensor/<uid>/...`` in the observation."""
    light: LightsCfg = field(default_factory=LightsCfg)
    """Lights in place of the one that is there by itself."""
    control_parts: list[str] | None = None
    """The robot's control parts that the actions move, in this order; None: ``arm`` where the robot has one, else
    all joints that have a drive."""
    active_joint_ids: list[int] | None = None
    """Instead: the joints themselves, by index."""
    actions: dict[str, ActionTermCfg] = field(default_factory=dict)
    """By term name."""
    observations: dict[str, ObservationCfg] = field(default_factory=dict)
    """By term name."""
    rewards: dict[str, RewardCfg] = field(default_factory=dict)
    """By term name."""
    events: dict[str, EventCfg] = field(default_factory=dict)
    """By term name."""
    dataset: dict[str, DatasetCfg] = field(default_factory=dict)
    """Recorders of finished episodes, by name."""
    extensions: dict[str, Any] = field(default_factory=dict)
    """Become attributes of the environment, for the task's own parameters."""


def check_groups(cfg: EnvCfg) -> None:
    """Raise a ConfigError where the environments cannot be divided into groups of ``group_size``."""
    if cfg.num_envs % cfg.group_size:
        raise ConfigError(f"group_size: {cfg.num_envs} environments cannot be divided into groups of {cfg.group_size}")


def check_parts(parts: Sequence[str], known: Iterable[str]) -> None:
    """Check the control parts that actions are to move.

    Args:
        parts: the config's ``env.control_parts``.
        known: the robot's.

    Raises:
        ConfigError: there are none, or one that the robot does not have.
    """
    if not parts:
        raise ConfigError("env.control_parts: at least one is needed")
    for part in parts:
        if part not in known:
            raise ConfigError(f"env.control_parts: {unknown_name('control part', part, known)}")
