"""Searches for settings: many trainings, each in a process of its own."""
