"""Sensors and rendering."""

from embodichain.lab.sim.rendering.appearance import Appearance
from embodichain.lab.sim.rendering.choice import make_drawer
from embodichain.lab.sim.rendering.renderer import CameraPose, Renderer
from embodichain.lab.sim.rendering.shot import Drawer, RenderingUnavailableError
from embodichain.lab.sim.sensors.camera import Camera, StereoCamera
from embodichain.lab.sim.sensors.cfg import CameraCfg, ExtrinsicsCfg, SensorCfg, StereoCameraCfg

__all__ = [
    "Appearance",
    "Camera",
    "CameraCfg",
    "CameraPose",
    "Drawer",
    "ExtrinsicsCfg",
    "Renderer",
    "RenderingUnavailableError",
    "SensorCfg",
    "StereoCamera",
    "StereoCameraCfg",
    "make_drawer",
]
