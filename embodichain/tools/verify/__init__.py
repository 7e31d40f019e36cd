"""Do the two physics engines tell the same story? ``embodichain verify-backends`` answers."""
