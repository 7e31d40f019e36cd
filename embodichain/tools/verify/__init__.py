"""Do the two physics backends tell the same story? ``embodichain verify-backends`` answers."""
