"""Comparisons of trainings over their seeds."""
