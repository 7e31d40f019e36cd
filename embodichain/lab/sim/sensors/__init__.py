"""Cameras as sensors."""

from embodichain.lab.sim.sensors.camera import Camera, StereoCamera
from embodichain.lab.sim.sensors.cfg import CameraCfg, ExtrinsicsCfg, SensorCfg, StereoCameraCfg

__all__ = ["Camera", "CameraCfg", "ExtrinsicsCfg", "SensorCfg", "StereoCamera", "StereoCameraCfg"]
