"""Cameras and contact sensors."""

from embodichain.lab.sim.sensors.camera import Camera, StereoCamera
from embodichain.lab.sim.sensors.cfg import CameraCfg, ContactSensorCfg, ExtrinsicsCfg, SensorCfg, StereoCameraCfg
from embodichain.lab.sim.sensors.contact import ContactSensor

__all__ = [
    "Camera",
    "CameraCfg",
    "ContactSensor",
    "ContactSensorCfg",
    "ExtrinsicsCfg",
    "SensorCfg",
    "StereoCamera",
    "StereoCameraCfg",
]
