"""Our environments for other libraries.

:mod:`~embodichain.lab.gym.wrappers.sb3` is imported by its own name, since it needs Stable-Baselines3.
"""

from embodichain.lab.gym.wrappers.gymnasium_vector import GymnasiumVectorEnv
from embodichain.lab.gym.wrappers.replay import ReplayEnv

__all__ = ["GymnasiumVectorEnv", "ReplayEnv"]
