"""Collection in the background, beside the updates."""
