"""Demonstrations for reinforcement learning: from a dataset, or a task's scripted expert."""
