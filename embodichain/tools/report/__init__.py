"""A run's report, from its folder. Nothing is simulated here."""
