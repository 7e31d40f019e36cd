"""The things of a scene's config checked before they are built: names, files, and what makes a robot."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from embodichain.lab.gym.envs import EmbodiedEnvCfg
from embodichain.lab.sim.cfg import ArticulationCfg, RigidObjectCfg, RobotCfg
from embodichain.lab.sim.model.checks import (
    asset_of_robot_type,
    check_asset,
    check_components,
    check_plane,
    check_uid,
    mesh_path,
)
from embodichain.lab.sim.shapes import MeshCfg, PlaneCfg
from embodichain.utils.configclass import MISSING, replace
from embodichain.utils.errors import collected

__all__ = ["component_kinds", "scene_problems", "things_in_config"]


def things_in_config(cfg: EmbodiedEnvCfg) -> Iterator[tuple[str, Any]]:
    """Yield path and config of each thing in a scene; a group's members have the names that the scene gives them."""
    if cfg.robot is not None:
        yield "robot", cfg.robot
    for key in ("background", "rigid_object", "articulation", "sensor", "rigid_object_group"):
        yield from ((f"{key}[{i}]", thing) for i, thing in enumerate(getattr(cfg, key)))
    yield from ((f"light.direct[{i}]", light) for i, light in enumerate(cfg.light.direct))
    for i, group in enumerate(cfg.rigid_object_group):
        if group.folder_path is None and _is_given(group.uid) and _is_given(group.rigid_objects):
            for name, member in group.rigid_objects.items():
                yield f"rigid_object_group[{i}].rigid_objects.{name}", replace(member, uid=f"{group.uid}_{name}")


def component_kinds(robot: RobotCfg) -> list[str]:
    """Return what a robot is assembled from (``arm``, ``hand``, ...)."""
    has_arm = robot.robot_type is not None or robot.fpath is not None
    components = [] if robot.urdf_cfg is None else robot.urdf_cfg.components
    return list(dict.fromkeys([*["arm"] * has_arm, *(component.component_type for component in components)]))


def scene_problems(cfg: EmbodiedEnvCfg, wrong: Collection[str] = ()) -> list[str]:
    """Return what is wrong with the things of a scene beyond their types, a line each.

    Args:
        cfg: the environment's config; what has no value is passed over.
        wrong: paths of what is left out of it, since its type is wrong.
    """
    problems: list[str] = []
    taken: set[str] = set()
    for place, thing in things_in_config(cfg):
        if _is_given(thing.uid):
            with collected(problems, f"{place}.uid: "):
                check_uid(thing.uid, taken)
            taken.add(thing.uid)
        if isinstance(thing, RigidObjectCfg):
            _check_shape(thing, place, wrong, problems)
        if isinstance(thing, ArticulationCfg):
            _check_files(thing, place, problems)
        if isinstance(thing, RobotCfg):
            _check_robot(thing, wrong, problems)
    return problems


def _check_shape(body: RigidObjectCfg, place: str, wrong: Collection[str], problems: list[str]) -> None:
    if isinstance(body.shape, MeshCfg) and _is_given(body.shape.fpath):
        with collected(problems, f"{place}.shape.fpath: "):
            mesh_path(body.shape.fpath)
    is_known = not place.startswith("background") and f"{place}.body_type" not in wrong
    if isinstance(body.shape, PlaneCfg) and is_known:
        with collected(problems, f"{place}.body_type: "):
            check_plane(body.body_type)


def _check_files(articulation: ArticulationCfg, place: str, problems: list[str]) -> None:
    files = {f"{place}.fpath": articulation.fpath}
    if isinstance(articulation, RobotCfg) and articulation.urdf_cfg is not None:
        components = enumerate(articulation.urdf_cfg.components)
        files |= {f"{place}.urdf_cfg.components[{i}].urdf_path": part.urdf_path for i, part in components}
    for path, name in files.items():
        if name is not None and _is_given(name):
            with collected(problems, f"{path}: "):
                check_asset(name)


def _check_robot(robot: RobotCfg, wrong: Collection[str], problems: list[str]) -> None:
    if robot.robot_type is not None:
        with collected(problems, "robot.robot_type: "):
            asset_of_robot_type(robot.robot_type, robot.ur_type)
    if not any(path == "robot" or path.startswith(("robot.robot_type", "robot.fpath", "robot.urdf")) for path in wrong):
        with collected(problems, "robot: "):
            check_components(component_kinds(robot))


def _is_given(value: Any) -> bool:
    return value is not MISSING
