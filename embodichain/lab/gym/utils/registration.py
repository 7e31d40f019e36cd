"""The registry of environments, where the documented import finds it."""

from embodichain.lab.gym.registry import make, register_env

__all__ = ["make", "register_env"]
