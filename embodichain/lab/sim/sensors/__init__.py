"""Sensors and rendering."""

from embodichain.lab.sim.sensors.appearance import Appearance
from embodichain.lab.sim.sensors.camera import Camera, StereoCamera
from embodichain.lab.sim.sensors.cfg import CameraCfg, ExtrinsicsCfg, SensorCfg, StereoCameraCfg
from embodichain.lab.sim.sensors.drawing import DrawingThreads
from embodichain.lab.sim.sensors.renderer import CameraPose, Renderer, RenderingUnavailableError

__all__ = [
    "Appearance",
    "Camera",
    "CameraCfg",
    "CameraPose",
    "DrawingThreads",
    "ExtrinsicsCfg",
    "Renderer",
    "RenderingUnavailableError",
    "SensorCfg",
    "StereoCamera",
    "StereoCameraCfg",
]
