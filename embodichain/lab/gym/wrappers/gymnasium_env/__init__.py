"""Any Gymnasium environment as one that our learner trains in."""

from embodichain.lab.gym.wrappers.gymnasium_env.cfg import GymnasiumEnvCfg
from embodichain.lab.gym.wrappers.gymnasium_env.env import GymnasiumEnv

__all__ = ["GymnasiumEnv", "GymnasiumEnvCfg"]
