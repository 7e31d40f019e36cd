"""Checks of config files, of either kind; nothing is built."""
