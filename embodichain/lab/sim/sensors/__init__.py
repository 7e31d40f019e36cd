"""Sensors and rendering."""

from embodichain.lab.sim.sensors.appearance import Appearance
from embodichain.lab.sim.sensors.camera import Camera, StereoCamera
from embodichain.lab.sim.sensors.cfg import CameraCfg, ExtrinsicsCfg, SensorCfg, StereoCameraCfg
from embodichain.lab.sim.sensors.choice import make_drawer
from embodichain.lab.sim.sensors.renderer import CameraPose, Renderer
from embodichain.lab.sim.sensors.shot import Drawer, RenderingUnavailableError

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
