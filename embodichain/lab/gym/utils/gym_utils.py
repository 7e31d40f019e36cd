"""Reading of an environment's config, where the documented import finds it."""

from embodichain.lab.gym.config.env_config import config_to_cfg
from embodichain.lab.gym.envs.managers.cfg import DEFAULT_MANAGER_MODULES

__all__ = ["DEFAULT_MANAGER_MODULES", "config_to_cfg"]
