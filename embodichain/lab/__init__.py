"""The laboratory: simulation (``sim``) and environments (``gym``)."""
