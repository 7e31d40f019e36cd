"""Asynchronous collection, in the background of the updates."""
