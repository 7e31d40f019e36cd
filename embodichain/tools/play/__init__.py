"""Episodes with a saved policy, or with none, as a video."""
