"""Environments on top of the simulation."""
