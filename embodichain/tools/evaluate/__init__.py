"""Evaluations of a saved policy on a fixed set of episodes."""
