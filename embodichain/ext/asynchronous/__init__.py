"""Collection in the background, during the updates; see the README of this folder."""
