"""Collection in the background, beside the updates; see the README of this folder."""
