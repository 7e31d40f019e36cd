"""The user's own classes."""
