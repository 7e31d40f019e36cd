"""An articulation's spec from its config: parts put together, joints and links by their short names.

In the spec the first part's elements keep their names; the others' are ``<part>/<name>``. Outside, everything
has its own name where that is unique. Parts of a side (``left_arm``) have the side before all their names.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import mujoco
import numpy as np
import torch

from embodichain.lab.sim.assets import UR_TYPES, bundled_assets
from embodichain.lab.sim.cfg import ArticulationCfg, RobotCfg, URDFComponentCfg
from embodichain.lab.sim.kinematics import frame_pose, pos_quat
from embodichain.lab.sim.math import quat_from_euler
from embodichain.lab.sim.model.model_files import ModelFile, load_model
from embodichain.utils import ConfigError, placed, unknown_name

FLANGE_NAMES = ("tool0", "attachment_site", "flange")
"""Names of the site or link where a tool is mounted."""

# Place of each part, in the order in which parts are built (the joints' order).
_PARENTS: dict[str, tuple[str, ...]] = {
    "chassis": (),
    "torso": ("chassis",),
    "head": ("torso", "chassis"),
    "arm": ("torso", "chassis"),
    "left_arm": ("torso", "chassis"),
    "right_arm": ("torso", "chassis"),
    "hand": ("arm",),
    "left_hand": ("left_arm",),
    "right_hand": ("right_arm",),
}


@dataclass
class Assembly:
    """One articulation's spec and the names in it.

    Attributes:
        spec: all parts, without actuators.
        joints: short name -> name in the spec, of the hinges and slides in joint order.
        links: short name -> name in the spec, of the bodies.
        undriven: short names of the joints that have no drive.
        parts: the driven joints of each part, by short name.
        ends: the site or body of each part where the next part is mounted.
        home: initial positions that the files give, by short name.
        base_transform: pose of the first part in the articulation's frame, 4x4.
        start: [7] position and quaternion wxyz of the first part's root, as its file has it.
        unseen: visual meshes of the files that are left out.
        warnings: MuJoCo's warnings about the files.
    """

    spec: mujoco.MjSpec
    joints: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    undriven: set[str] = field(default_factory=set)
    parts: dict[str, list[str]] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    home: dict[str, float] = field(default_factory=dict)
    base_transform: np.ndarray = field(default_factory=lambda: np.eye(4))
    start: np.ndarray = field(default_factory=lambda: np.zeros(7))
    unseen: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def assemble(cfg: ArticulationCfg, place: str) -> Assembly:
    """Load the parts of an articulation and put them together."""
    components = _components(cfg, place)
    result = Assembly(mujoco.MjSpec())
    for kind, (component, path) in components.items():
        model = load_model(component.urdf_path, path)
        side = f"{kind.partition('_')[0]}_" if "_" in kind else ""
        pose = np.array(component.transform)
        prefix = f"{kind}/{side}" if result.parts else side
        if result.parts:
            model.spec.option = result.spec.option  # a scene has one; the parts' own are no reason for a warning
            parent = next((parent for parent in _PARENTS[kind] if parent in components), None)
            if parent is None:
                _attach(result.spec, model.spec, prefix, "world", np.linalg.inv(result.base_transform) @ pose)
            else:
                _attach(result.spec, model.spec, prefix, result.ends[parent], pose)
        else:
            result.base_transform, result.start = pose, model.start
            if side:
                result.spec.option = model.spec.option
                _attach(result.spec, model.spec, prefix, "world", np.eye(4))
            else:
                result.spec = model.spec
        _add_names(result, model, kind, side, prefix)
        result.unseen += model.unseen
        result.warnings += model.warnings
    return result


def _components(cfg: ArticulationCfg, place: str) -> dict[str, tuple[URDFComponentCfg, str]]:
    """Return the parts by kind, in building order, each with the place of its model in the config."""
    found: dict[str, tuple[URDFComponentCfg, str]] = {}
    if isinstance(cfg, RobotCfg):
        if cfg.robot_type is not None:
            path = f"{place}.robot_type"
            with placed(f"{path}: "):
                found["arm"] = URDFComponentCfg("arm", _asset_of_robot_type(cfg.robot_type, cfg.ur_type)), path
        for i, part in enumerate(cfg.urdf_cfg.components if cfg.urdf_cfg is not None else ()):
            found[part.component_type] = part, f"{place}.urdf_cfg.components[{i}].urdf_path"
    if cfg.fpath is not None:
        found["arm"] = URDFComponentCfg("arm", cfg.fpath), f"{place}.fpath"
    with placed(f"{place}: "):
        _check_components(found)
    return {kind: found[kind] for kind in _PARENTS if kind in found}


def _asset_of_robot_type(robot_type: str, ur_type: str) -> str:
    """Return the bundled asset of a ``robot_type``, which ignores case; ConfigError where there is none."""
    types = {"URRobot": ur_type, "FrankaPanda": "panda", "CartPole": "cart_pole"}
    types |= {name: name for name in bundled_assets()}
    asset = {name.lower(): asset for name, asset in types.items()}.get(robot_type.lower())
    if asset is None:
        raise ConfigError(unknown_name("robot_type", robot_type, types))
    if asset not in bundled_assets():
        raise ConfigError(unknown_name("ur_type", asset, UR_TYPES))
    return asset


def _check_components(kinds: Collection[str]) -> None:
    """Raise a ConfigError if a robot has no parts, or a hand without its arm."""
    for kind in kinds:
        if kind.endswith("hand") and kind.replace("hand", "arm") not in kinds:
            arm = kind.replace("hand", "arm")
            raise ConfigError(f"a '{kind}' needs an arm: fpath, robot_type, or '{arm}' in urdf_cfg.components")
    if not kinds:
        raise ConfigError("needs an arm: fpath, robot_type, or an 'arm' in urdf_cfg.components")


def _attach(spec: mujoco.MjSpec, part: mujoco.MjSpec, prefix: str, where: str, pose: np.ndarray) -> None:
    """Attach a part to a body or site of the spec, at a pose in its frame."""
    body = spec.worldbody if where == "world" else spec.body(where)
    if body is None:
        site = spec.site(where)
        body, pose = site.parent, frame_pose(site.pos, site.quat) @ pose
    spec.attach(part, prefix=prefix, frame=body.add_frame(**pos_quat(pose)))


def _end_of(link: mujoco.MjsBody) -> str:
    """Return the flange on a link or on a body fixed to it: a site or a body; else the link."""
    bodies = [link]
    while bodies:
        body = bodies.pop(0)
        for element in (*body.sites, body):
            if element.name.rpartition("/")[2].removeprefix("left_").removeprefix("right_") in FLANGE_NAMES:
                return str(element.name)
        bodies += [child for child in body.bodies if not list(child.joints)]
    return str(link.name)


def _add_names(result: Assembly, model: ModelFile, kind: str, side: str, prefix: str) -> None:
    links = [name for name in model.links if name != "world"]
    joints = _shorten(result.joints, model.joints, side, prefix)
    result.links |= dict(_shorten(result.links, links, side, prefix).values())
    result.joints |= dict(joints.values())
    result.undriven |= {joints[name][0] for name in model.undriven}
    result.home |= {joints[name][0]: q for name, q in model.home.items()}
    driven = [name for name in model.joints if name not in model.undriven]
    result.parts[kind] = [joints[name][0] for name in driven]
    last = result.spec.joint(prefix + driven[-1]).parent if driven else result.spec.body(prefix + links[-1])
    result.ends[kind] = _end_of(last)


def _shorten(taken: Mapping[str, str], names: list[str], side: str, prefix: str) -> dict[str, tuple[str, str]]:
    """Return for each of a part's names the short one and that in the spec."""
    return {name: (side + name if side + name not in taken else prefix + name, prefix + name) for name in names}


def place_base(scene: mujoco.MjSpec, built: Assembly, cfg: ArticulationCfg, place: str) -> None:
    """Put an articulation into the scene, fixed or free.

    A free base starts at ``init_pos``; where that is the origin, at its position in the file. ``init_rot`` turns it
    from its orientation in the file.
    """
    pos = np.array(cfg.init_pos)
    if cfg.fix_base:
        for joint in _free_joints(built.spec):
            built.spec.delete(joint)
    else:
        _free_root(built, place)
        pos = pos if pos.any() else built.start[:3]
    built.spec.option, built.spec.visual = scene.option, scene.visual  # a scene has one of each
    frame = scene.worldbody.add_frame(pos=pos, quat=quat_of_degrees(cfg.init_rot))
    inner = scene.worldbody.add_frame(**pos_quat(built.base_transform))
    inner.set_frame(frame)
    scene.attach(built.spec, prefix=f"{cfg.uid}/", frame=inner)


def quat_of_degrees(angles: Sequence[float]) -> np.ndarray:
    """Return the quaternion wxyz of angles about the fixed x, then y, then z axis, degrees."""
    radians = torch.tensor([math.radians(angle) for angle in angles], dtype=torch.float64)
    return quat_from_euler(radians).numpy()


def _free_root(built: Assembly, place: str) -> None:
    """Give the root a free joint, and the orientation of the file at the origin."""
    roots = list(built.spec.worldbody.bodies)
    if len(roots) != 1:
        raise ConfigError(f"{place}: fix_base false needs one root, got {', '.join(body.name for body in roots)}")
    root = roots[0]
    if own := [joint.name for joint in root.joints if joint.type != mujoco.mjtJoint.mjJNT_FREE]:
        raise ConfigError(
            f"{place}: fix_base false makes the base move freely, and its root '{root.name}' has joints that move it: "
            f"{', '.join(own)}. Leave fix_base out: they are joints of the robot"
        )
    if not _free_joints(built.spec):
        root.add_freejoint()
    root.pos, root.quat = np.zeros(3), built.start[3:]
    root.alt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT


def _free_joints(spec: mujoco.MjSpec) -> list[mujoco.MjsJoint]:
    return [joint for joint in spec.joints if joint.type == mujoco.mjtJoint.mjJNT_FREE]
