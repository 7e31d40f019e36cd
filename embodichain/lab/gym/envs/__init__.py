"""Environments."""

from embodichain.lab.gym.envs.base_env import BaseEnv
from embodichain.lab.gym.envs.embodied_env import EmbodiedEnv
from embodichain.lab.gym.envs.env_cfg import EmbodiedEnvCfg, EnvCfg
from embodichain.lab.gym.envs.scene_env import SceneEnv

__all__ = ["BaseEnv", "EmbodiedEnv", "EmbodiedEnvCfg", "EnvCfg", "SceneEnv"]
