"""A scene's entities by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from embodichain.lab.sim.objects import Articulation, Light, Marker, RigidObject, RigidObjectGroup, Robot, SceneBody
from embodichain.lab.sim.sensors import Camera, ContactSensor
from embodichain.utils import logger
from embodichain.utils.errors import unknown_name

T = TypeVar("T")


class SceneEntities:
    """The entities of a simulation, which ``SimulationManager.build`` creates.

    Attributes:
        rigid_objects, articulations, robots, sensors, contact_sensors: entities by uid; ``sensors`` are the cameras.
    """

    def __init__(self) -> None:
        self.rigid_objects: dict[str, RigidObject] = {}
        self.articulations: dict[str, Articulation] = {}
        self.robots: dict[str, Robot] = {}
        self.sensors: dict[str, Camera] = {}
        self.contact_sensors: dict[str, ContactSensor] = {}
        self._markers: dict[str, Marker] = {}
        self._groups: dict[str, RigidObjectGroup] = {}
        self._lights: dict[str, Light] = {}
        self._bodies: dict[str, SceneBody] = {}

    def uids_by_kind(self) -> dict[str, frozenset[str]]:
        """Return the names of the entities of each kind."""
        return {
            "rigid object": frozenset(self.rigid_objects),
            "rigid object group": frozenset(self._groups),
            "articulation": frozenset(self.articulations),
            "robot": frozenset(self.robots),
            "articulation or robot": frozenset(self.articulations | self.robots),
            "light": frozenset(self._lights),
        }

    def _warn_of_softened(self, softened: Mapping[str, str], physics_dt: float) -> None:
        """Log the drives that are less stiff than configured; effort drives are left out.

        Args:
            softened: a text for each drive, by its name.
        """
        by_effort = {
            name for one in (*self.articulations.values(), *self.robots.values()) for name in one.drives.by_effort()
        }
        if texts := [text for name, text in softened.items() if name not in by_effort]:
            logger.log_warning(f"drives too stiff for physics_dt {physics_dt}, softened: {'; '.join(texts)}")

    def get_rigid_object(self, uid: str) -> RigidObject:
        """Return a rigid body; KeyError names the known ones."""
        return find_entity(self.rigid_objects, "rigid object", uid)

    def get_articulation(self, uid: str) -> Articulation:
        """Return an articulation; KeyError names the known ones."""
        return find_entity(self.articulations, "articulation", uid)

    def get_robot(self, uid: str) -> Robot:
        """Return a robot; KeyError names the known ones."""
        return find_entity(self.robots, "robot", uid)

    def get_articulation_or_robot(self, uid: str) -> Articulation:
        """Return an articulation or a robot; KeyError names the known ones."""
        return find_entity({**self.articulations, **self.robots}, "articulation or robot", uid)

    def get_asset(self, uid: str) -> RigidObject | Articulation | Marker | SceneBody:
        """Return a rigid body, articulation, robot, marker or body of a file; KeyError names the known ones."""
        assets: dict[str, RigidObject | Articulation | Marker | SceneBody] = {
            **self.rigid_objects,
            **self._markers,
            **self._bodies,
        }
        return find_entity(assets | self.articulations | self.robots, "entity", uid)

    def get_marker(self, uid: str) -> Marker:
        """Return a marker; KeyError names the known ones."""
        return find_entity(self._markers, "marker", uid)

    def get_body(self, uid: str) -> SceneBody:
        """Return a body of the scene's file; KeyError names the known ones."""
        return find_entity(self._bodies, "body", uid)

    def get_rigid_object_group(self, uid: str) -> RigidObjectGroup:
        """Return a group of rigid bodies; KeyError names the known ones."""
        return find_entity(self._groups, "rigid object group", uid)

    def get_light(self, uid: str) -> Light:
        """Return a light; KeyError names the known ones."""
        return find_entity(self._lights, "light", uid)

    def get_sensor(self, uid: str) -> Camera:
        """Return a camera; KeyError names the known ones."""
        return find_entity(self.sensors, "sensor", uid)

    def get_contact_sensor(self, uid: str) -> ContactSensor:
        """Return a contact sensor; KeyError names the known ones."""
        return find_entity(self.contact_sensors, "contact sensor", uid)


def find_entity(entities: Mapping[str, T], kind: str, uid: str) -> T:
    """Return one of the entities; KeyError names the known ones."""
    if uid not in entities:
        raise KeyError(unknown_name(kind, uid, entities))
    return entities[uid]
