"""The entities of a scene: views of the backend's state for task code."""

from embodichain.lab.sim.backend.base import StateCache, cached_per_state
from embodichain.lab.sim.objects.articulation import Articulation, BasePose, BodyData, DriveMode
from embodichain.lab.sim.objects.rigid_object import RigidObject, RigidObjectGroup
from embodichain.lab.sim.objects.robot import Robot
from embodichain.lab.sim.objects.scenery import Light, Marker, SceneBody, Terrain

__all__ = [
    "Articulation",
    "BasePose",
    "BodyData",
    "DriveMode",
    "Light",
    "Marker",
    "RigidObject",
    "RigidObjectGroup",
    "Robot",
    "SceneBody",
    "StateCache",
    "Terrain",
    "cached_per_state",
]
