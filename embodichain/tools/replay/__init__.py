"""Repeats an update from a bundle, and finds the first NaN or infinite value."""
