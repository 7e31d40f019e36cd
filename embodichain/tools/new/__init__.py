"""A task to start from, written from templates."""
