"""Checkpoints on the disk, and the runs that they belong to."""
