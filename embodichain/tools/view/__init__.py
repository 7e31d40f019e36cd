"""The scene of a config: an image of it, and what a policy sees and does in it."""
