"""Repeats an update from a bundle, and finds the first NaN or infinite value."""

from embodichain.tools.replay.run import replay_update

__all__ = ["replay_update"]
