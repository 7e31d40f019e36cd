"""Compilation of configs and model files to a model, its drives and initial state."""
