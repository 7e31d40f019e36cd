"""The managers, and the base of their terms."""

from embodichain.lab.gym.envs.managers.action_manager import ActionManager
from embodichain.lab.gym.envs.managers.base import ActionTerm, Functor
from embodichain.lab.gym.envs.managers.dataset_manager import DatasetManager
from embodichain.lab.gym.envs.managers.event_manager import EventManager
from embodichain.lab.gym.envs.managers.observation_manager import ObservationManager
from embodichain.lab.gym.envs.managers.reward_manager import RewardManager

__all__ = [
    "ActionManager",
    "ActionTerm",
    "DatasetManager",
    "EventManager",
    "Functor",
    "ObservationManager",
    "RewardManager",
]
