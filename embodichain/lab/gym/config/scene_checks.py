"""The things of a scene's config checked before they are built: names, files, and what makes a robot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from embodichain.lab.sim.cfg import COMPONENT_TYPES
from embodichain.lab.sim.model.checks import (
    asset_of_robot_type,
    check_asset,
    check_components,
    check_plane,
    check_uid,
    mesh_path,
)
from embodichain.utils.errors import collected

__all__ = ["component_kinds", "entities_in_config", "scene_problems"]


def entities_in_config(data: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield path and content of each thing in an environment's config; malformed ones are passed over."""
    if isinstance(data.get("robot"), Mapping):
        yield "robot", data["robot"]
    for key in ("background", "rigid_object", "articulation", "sensor", "rigid_object_group"):
        yield from _entities(data.get(key), key)
    light = data.get("light")
    yield from _entities(light.get("direct") if isinstance(light, Mapping) else None, "light.direct")
    for place, group in _entities(data.get("rigid_object_group"), "rigid_object_group"):
        members = group.get("rigid_objects")
        if isinstance(members, Mapping) and group.get("folder_path") is None:
            for name, member in members.items():
                if isinstance(member, Mapping):
                    yield f"{place}.rigid_objects.{name}", {**member, "uid": f"{group.get('uid')}_{name}"}


def _entities(block: Any, place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for i, entity in enumerate(block if isinstance(block, list) else ()):
        if isinstance(entity, Mapping):
            yield f"{place}[{i}]", entity


def component_kinds(robot: Mapping[str, Any]) -> list[str] | None:
    """Return what a robot is assembled from (``arm``, ``hand``, ...), or None where that is malformed."""
    urdf = robot.get("urdf_cfg") or {}
    components = urdf.get("components", []) if isinstance(urdf, Mapping) else None
    if not isinstance(components, list):
        return None
    kinds = [c.get("component_type") if isinstance(c, Mapping) else None for c in components]
    if not all(kind in COMPONENT_TYPES for kind in kinds):
        return None
    has_arm = robot.get("robot_type") is not None or robot.get("fpath") is not None
    return list(dict.fromkeys(["arm"] * has_arm + [str(kind) for kind in kinds]))


def scene_problems(data: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the things of an environment's config beyond their types, a line each."""
    problems: list[str] = []
    taken: set[str] = set()
    for place, entity in entities_in_config(data):
        if isinstance(uid := entity.get("uid"), str):
            with collected(problems, f"{place}.uid: "):
                check_uid(uid, taken)
            taken.add(uid)
        shape = entity.get("shape")
        if isinstance(shape, Mapping):
            _check_shape(shape, entity, place, problems)
        for path, name in _assets(entity, place):
            with collected(problems, f"{path}: "):
                check_asset(name)
    robot = data.get("robot")
    if isinstance(robot, Mapping):
        _check_robot(robot, problems)
    return problems


def _check_shape(shape: Mapping[str, Any], entity: Mapping[str, Any], place: str, problems: list[str]) -> None:
    if shape.get("shape_type") == "Mesh" and isinstance(shape.get("fpath"), str):
        with collected(problems, f"{place}.shape.fpath: "):
            mesh_path(shape["fpath"])
    if shape.get("shape_type") == "Plane" and not place.startswith("background"):
        with collected(problems, f"{place}.body_type: "):
            check_plane(entity.get("body_type", "dynamic"))


def _check_robot(robot: Mapping[str, Any], problems: list[str]) -> None:
    robot_type, ur_type = robot.get("robot_type"), robot.get("ur_type", "ur10")
    if isinstance(robot_type, str) and isinstance(ur_type, str):
        with collected(problems, "robot.robot_type: "):
            asset_of_robot_type(robot_type, ur_type)
    kinds = component_kinds(robot)
    if kinds is not None:
        with collected(problems, "robot: "):
            check_components(kinds)


def _assets(entity: Mapping[str, Any], place: str) -> Iterator[tuple[str, str]]:
    """Yield path and name of the model files that an articulation asks for."""
    if isinstance(entity.get("fpath"), str):
        yield f"{place}.fpath", entity["fpath"]
    for path, component in _components(entity, place):
        if isinstance(component.get("urdf_path"), str):
            yield f"{path}.urdf_path", component["urdf_path"]


def _components(entity: Mapping[str, Any], place: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    urdf = entity.get("urdf_cfg")
    components = urdf.get("components") if isinstance(urdf, Mapping) else None
    for i, component in enumerate(components if isinstance(components, list) else ()):
        if isinstance(component, Mapping):
            yield f"{place}.urdf_cfg.components[{i}]", component
