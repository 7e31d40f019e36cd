"""Runs on the Hugging Face Hub; see the README of this folder."""

from embodichain.commands import Command

COMMAND = Command(
    "embodichain.ext.hub.repository",
    "Publish a run on the Hugging Face Hub: checkpoint, config, results, video and a model card.",
)
