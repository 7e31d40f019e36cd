"""Policies as ONNX files for robots; see the README of this folder."""

from embodichain.commands import Command

COMMAND = Command(
    "embodichain.ext.export.run",
    "Write a policy as a file that runs without this package: normaliser, order of the entries and scaling inside.",
)
