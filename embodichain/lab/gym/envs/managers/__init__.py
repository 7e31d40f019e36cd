"""The managers, the base of their terms, and the terms' configs."""

from embodichain.lab.gym.envs.managers.action_manager import ActionManager
from embodichain.lab.gym.envs.managers.base import ActionTerm, CommandTerm, Functor, Manager
from embodichain.lab.gym.envs.managers.cfg import (
    ActionTermCfg,
    CommandCfg,
    CurriculumCfg,
    DatasetCfg,
    EventCfg,
    FunctorCfg,
    ObservationCfg,
    RewardCfg,
    SceneEntityCfg,
    TerminationCfg,
)
from embodichain.lab.gym.envs.managers.commands import CommandManager
from embodichain.lab.gym.envs.managers.curriculum import CurriculumManager
from embodichain.lab.gym.envs.managers.datasets import DatasetManager
from embodichain.lab.gym.envs.managers.events import EventManager
from embodichain.lab.gym.envs.managers.observations import ObservationManager
from embodichain.lab.gym.envs.managers.rewards import RewardManager
from embodichain.lab.gym.envs.managers.terminations import TerminationManager

__all__ = [
    "ActionManager",
    "ActionTerm",
    "ActionTermCfg",
    "CommandCfg",
    "CommandManager",
    "CommandTerm",
    "CurriculumCfg",
    "CurriculumManager",
    "DatasetCfg",
    "DatasetManager",
    "EventCfg",
    "EventManager",
    "Functor",
    "FunctorCfg",
    "Manager",
    "ObservationCfg",
    "ObservationManager",
    "RewardCfg",
    "RewardManager",
    "SceneEntityCfg",
    "TerminationCfg",
    "TerminationManager",
]
