"""Sensors of contact forces in the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import mujoco

from embodichain.lab.sim.model.drives import match_names
from embodichain.utils import logger

_NET_FORCE = 3  # the contact sensor's way to reduce several contacts to one
_OBJECT = mujoco.mjtObj
_FRAME_SENSORS = {"pos": mujoco.mjtSensor.mjSENS_FRAMEPOS, "vel": mujoco.mjtSensor.mjSENS_FRAMELINVEL}


def sense_net_force(sensor: mujoco.MjsSensor) -> None:
    """Let a sensor have the sum of the forces of all its object's contacts, as one."""
    sensor.type = mujoco.mjtSensor.mjSENS_CONTACT
    sensor.intprm = [1 << int(mujoco.mjtConDataField.mjCONDATA_FORCE), _NET_FORCE, 1]


def sense_links(
    spec: mujoco.MjSpec, uid: str, patterns: Iterable[str], links: Mapping[str, str], prefix: str, place: str
) -> tuple[list[str], str]:
    """Add sensors of force, position and velocity of an articulation's links, all forces first.

    Args:
        uid: contact sensor's uid, a prefix of the sensors' names.
        patterns: names or regular expressions of links.
        links: the articulation's bodies in the model by link name.
        prefix: prefix of the articulation's names in the model.
        place: patterns' place in the config, for messages.

    Returns:
        The links, and the first sensor's name.

    Raises:
        ConfigError: a pattern matches neither a link nor a collision shape.
    """
    geoms = (geom.name for geom in spec.geoms if geom.name.startswith(prefix) and geom.contype)
    shapes = {name.removeprefix(prefix): name for name in geoms}
    names = _match(patterns, list(links), list(shapes), place)
    if silent := [name for name in names if name in links and not _collides(spec.body(links[name]))]:
        logger.log_warning(
            f"{place}: no collision shape, so that nothing is sensed there: {', '.join(silent)} (a robot's "
            "collision_links name the links that keep theirs)"
        )
    for kind in ("force", "pos", "vel"):
        for name in names:
            sensor = spec.add_sensor(name=f"{uid}/{kind}/{name}", objname=links.get(name) or shapes[name])
            sensor.objtype = _OBJECT.mjOBJ_XBODY if name in links else _OBJECT.mjOBJ_GEOM
            if kind != "force":
                sensor.type = _FRAME_SENSORS[kind]
                continue
            sense_net_force(sensor)
            sensor.objtype = _OBJECT.mjOBJ_BODY if name in links else _OBJECT.mjOBJ_GEOM
    return names, f"{uid}/force/{names[0]}"


def _collides(body: mujoco.MjsBody) -> bool:
    return any(geom.contype or geom.conaffinity for geom in body.geoms)


def _match(patterns: Iterable[str], links: list[str], shapes: list[str], place: str) -> list[str]:
    """Return the links that patterns match, and shapes for patterns without a link, in order."""
    found: set[str] = set()
    for pattern in patterns:
        matches = match_names([pattern], [*links, *shapes], place, "link")
        found.update([name for name in matches if name in links] or matches)
    return [name for name in (*links, *shapes) if name in found]
