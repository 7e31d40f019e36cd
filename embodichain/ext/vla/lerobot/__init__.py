"""SmolVLA in LeRobot's format: folders with config, weights, processors and statistics, read and written."""
