"""A run's reward, term by term."""
