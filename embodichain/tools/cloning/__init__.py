"""Behaviour cloning: a policy imitates demonstrations, before reinforcement learning improves it."""
