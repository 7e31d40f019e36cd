"""Environments."""

from embodichain.lab.gym.envs.base_env import BaseEnv, EnvCfg
from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv, EmbodiedEnvCfg

__all__ = ["BaseEnv", "EmbodiedEnv", "EmbodiedEnvCfg", "EnvCfg"]
