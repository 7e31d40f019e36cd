"""Wrappers of our environments."""

from embodichain.lab.gym.wrappers.replay import ReplayEnv

__all__ = ["ReplayEnv"]
