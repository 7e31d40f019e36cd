"""LeRobot: datasets, recordings and environments for its EnvHub; see the README of this folder."""
