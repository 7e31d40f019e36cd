"""The managers, the base of their terms, and the terms' configs."""

from embodichain.lab.gym.envs.managers.action_manager import ActionManager
from embodichain.lab.gym.envs.managers.base import ActionTerm, Functor
from embodichain.lab.gym.envs.managers.cfg import (
    ActionTermCfg,
    DatasetCfg,
    EventCfg,
    FunctorCfg,
    ObservationCfg,
    RewardCfg,
    SceneEntityCfg,
)
from embodichain.lab.gym.envs.managers.dataset_manager import DatasetManager
from embodichain.lab.gym.envs.managers.event_manager import EventManager
from embodichain.lab.gym.envs.managers.observation_manager import ObservationManager
from embodichain.lab.gym.envs.managers.reward_manager import RewardManager

__all__ = [
    "ActionManager",
    "ActionTerm",
    "ActionTermCfg",
    "DatasetCfg",
    "DatasetManager",
    "EventCfg",
    "EventManager",
    "Functor",
    "FunctorCfg",
    "ObservationCfg",
    "ObservationManager",
    "RewardCfg",
    "RewardManager",
    "SceneEntityCfg",
]
