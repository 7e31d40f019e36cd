"""What makes the compiled model: configs, model files, drives, initial state."""
