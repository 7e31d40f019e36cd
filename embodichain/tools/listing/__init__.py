"""Lists of what a config may name."""
