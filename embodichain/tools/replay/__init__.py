"""Repeats an update from a bundle, and finds where it stopped being finite."""

from embodichain.tools.replay.run import replay_update

__all__ = ["replay_update"]
