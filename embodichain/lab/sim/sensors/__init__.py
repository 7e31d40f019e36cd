"""Sensors and rendering."""

from embodichain.lab.sim.sensors.camera import CameraPose, Renderer, RenderingUnavailableError

__all__ = ["CameraPose", "Renderer", "RenderingUnavailableError"]
