"""From configs and model files to the compiled model, its drives and initial state."""
