"""LeRobot datasets, written and read."""
