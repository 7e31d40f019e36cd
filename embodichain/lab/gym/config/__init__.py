"""From the JSON of an environment to its typed config, and the checks of it."""
