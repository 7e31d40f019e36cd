"""Configuration classes, logging and look-ups that every other part may use."""

from embodichain.utils import logger
from embodichain.utils.configclass import configclass
from embodichain.utils.errors import ConfigError

__all__ = ["ConfigError", "configclass", "logger"]
