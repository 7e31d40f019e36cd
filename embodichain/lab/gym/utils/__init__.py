"""Documented import paths of the registry and of the config, and arrays for other libraries."""
