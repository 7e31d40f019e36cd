"""Reading of an environment's config, where the documented import finds it."""

from embodichain.lab.gym.config.env_config import DEFAULT_MANAGER_MODULES, config_to_cfg

__all__ = ["DEFAULT_MANAGER_MODULES", "config_to_cfg"]
