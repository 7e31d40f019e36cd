"""Environments."""

from embodichain.lab.gym.envs.base_env import BaseEnv
from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv, SceneEnv
from embodichain.lab.gym.envs.env_cfg import EmbodiedEnvCfg, EnvCfg

__all__ = ["BaseEnv", "EmbodiedEnv", "EmbodiedEnvCfg", "EnvCfg", "SceneEnv"]
