"""Robots and articulations from files: URDF, MJCF, bundled assets and models of the MuJoCo Menagerie.

Differences between makers' files are removed here: meshes are found and checked, a file's own actuators become a
list of the joints they drive (the scene adds its own drives), and its first keyframe becomes the initial positions.

An articulation may have several parts. In its spec the first part's elements keep their names; the others' are
``<part>/<name>``. Outside, everything has its own name where that is unique. Parts of a side (``left_arm``) have the
side before all their names.
"""

import math
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import mujoco
import numpy as np
import torch

from embodichain.lab.sim.assets import UR_TYPES, asset_spec, bundled_assets
from embodichain.lab.sim.cfg import ArticulationCfg, RigidObjectCfg, RobotCfg, URDFComponentCfg
from embodichain.lab.sim.kinematics import frame_pose, pos_quat
from embodichain.lab.sim.math import quat_from_euler
from embodichain.utils import ConfigError, install_extra, placed, unknown_name

MENAGERIE = "menagerie/"
"""Prefix of the names of the MuJoCo Menagerie's models."""
MESH_FORMATS = (".obj", ".stl", ".msh")
"""Formats of meshes that can be read."""
FLANGE_NAMES = ("tool0", "attachment_site", "flange")
"""Names of the site or link where a tool is mounted."""
_SCALAR_JOINTS = (mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE)
_QPOS_SIZE = {
    mujoco.mjtJoint.mjJNT_FREE: 7,
    mujoco.mjtJoint.mjJNT_BALL: 4,
    mujoco.mjtJoint.mjJNT_HINGE: 1,
    mujoco.mjtJoint.mjJNT_SLIDE: 1,
}
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
class ModelFile:
    """A model as its maker wrote it, without actuators, sensors and keyframes.

    Attributes:
        spec: bodies, joints, geoms, equalities.
        joints: names of the hinges and slides, in the file's order.
        links: names of the bodies.
        undriven: joints without a drive: they mimic another, or none of the file's actuators moves them.
        home: their initial positions where the file says so, rad or m.
        unseen: visual meshes left out, since their format cannot be rendered.
        warnings: MuJoCo's warnings about the file.
        start: [7] position and quaternion wxyz of the first root body, of the first keyframe where it moves freely.
    """

    spec: mujoco.MjSpec
    joints: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    undriven: set[str] = field(default_factory=set)
    home: dict[str, float] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    start: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]))


def load_model(name: str, place: str) -> ModelFile:
    """Read a model and check that it compiles.

    Args:
        name: a file (URDF or MJCF), the name of a bundled asset, or ``menagerie/<model>[/<file>]`` with the extra
            ``menagerie``, which downloads it at its first use.
    """
    unseen: list[str] = []
    heard: list[str] = []
    try:
        with collecting_warnings(heard):
            spec = _read(name, place, unseen)
    except FileNotFoundError as error:
        raise ConfigError(f"{place}: {error}") from error
    except ConfigError:
        raise
    except (LookupError, RecursionError, ValueError, ElementTree.ParseError) as error:  # LookupError: an encoding
        raise ConfigError(f"{place}: cannot read '{name}': {' '.join(str(error).split())}") from error
    folder = Path(spec.modelfiledir) / spec.meshdir
    for mesh in spec.meshes:
        if mesh.file and mesh.file not in spec.assets and not (file := folder / mesh.file).is_file():
            raise ConfigError(f"{place}: mesh '{file}' is not there")
    model = ModelFile(spec, unseen=unseen, warnings=heard)
    for number, joint in enumerate(spec.joints):
        joint.name = joint.name or f"joint{number}"
        if joint.type in _SCALAR_JOINTS:
            model.joints.append(joint.name)
        elif joint.type == mujoco.mjtJoint.mjJNT_BALL:
            raise ConfigError(
                f"{place}: '{name}': joint '{joint.name}' is a ball joint; only hinges and slides are known"
            )
    for number, body in enumerate(spec.bodies):
        body.name = body.name or f"body{number}"
        model.links.append(body.name)
    model.home, start = _take_home(spec)
    driven = _take_actuators(spec)
    mimics = {e.name1 for e in spec.equalities if e.type == mujoco.mjtEq.mjEQ_JOINT and e.name2 and e.active}
    model.undriven = mimics | (set(model.joints) - driven if driven else set())
    for sensor in list(spec.sensors):
        spec.delete(sensor)
    # Room that a file reserves, for keyframes, contacts and users' numbers: a scene has its own.
    spec.nkey, spec.njmax, spec.nconmax = 0, -1, -1
    for kind in ("body", "jnt", "geom", "site", "cam", "tendon", "actuator", "sensor"):
        setattr(spec, f"nuser_{kind}", -1)
    try:
        with collecting_warnings(heard):
            compiled = spec.compile()
    except ValueError as error:
        raise ConfigError(f"{place}: cannot compile '{name}': {' '.join(str(error).split())}") from error
    _check_finite(compiled, f"{place}: '{name}'")
    if spec.compiler.inertiafromgeom == mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_TRUE:
        _fix_inertia(spec, compiled)
    _take_surroundings(spec)
    touching = [geom for geom in spec.geoms if geom.contype or geom.conaffinity]
    if len(touching) < len(list(spec.geoms)):
        for geom in touching:
            geom.group = 3  # not rendered, where other shapes are visible
    if start is not None:
        model.start = start
    elif compiled.nbody > 1:
        model.start = np.concatenate((compiled.body_pos[1], compiled.body_quat[1]))
    return model


def _read(name: str, place: str, unseen: list[str]) -> mujoco.MjSpec:
    if name.startswith(MENAGERIE):
        return _from_menagerie(name.removeprefix(MENAGERIE), place)
    path = Path(name).expanduser()
    if not path.is_file():
        return asset_spec(name)
    if path.suffix.lower() == ".urdf":
        return mujoco.MjSpec.from_string(_urdf_text(path, place, unseen))
    return mujoco.MjSpec.from_file(str(path))


def _from_menagerie(name: str, place: str) -> mujoco.MjSpec:
    try:
        import mujoco_menagerie  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"{place}: '{MENAGERIE}{name}' needs mujoco-menagerie: {install_extra('menagerie')}"
        ) from error
    model, _, entry = name.partition("/")
    try:
        robot = mujoco_menagerie.get(model)
        return robot.spec(entry or robot.default_model)
    except mujoco_menagerie.MenagerieError as error:
        raise ConfigError(f"{place}: '{MENAGERIE}{name}': {error}") from error


def _urdf_text(path: Path, place: str, unseen: list[str]) -> str:
    """Return a URDF with absolute mesh paths, and with the visuals and fixed links that MuJoCo leaves out by default.

    Visual meshes that cannot be rendered are added to ``unseen``.
    """
    root = ElementTree.fromstring(path.read_bytes())
    if root.tag != "robot":
        raise ConfigError(f"{place}: cannot read '{path}': a URDF's root is <robot>, got <{root.tag}>")
    missing: list[str] = []
    for link in root.iter("link"):
        for kind in ("visual", "collision"):
            for element in link.findall(kind):
                mesh = element.find("geometry/mesh")
                if mesh is None:
                    continue
                where = f"{kind} of link '{link.get('name')}'"
                name = mesh.get("filename", "")
                file = _find_mesh(name, path.parent)
                if file is None:
                    missing.append(f"mesh '{name}' ({where}) is not there")
                elif file.suffix.lower() in MESH_FORMATS:
                    mesh.set("filename", str(file))
                elif kind == "visual":
                    link.remove(element)
                    unseen.append(f"'{name}' ({where})")
                else:
                    missing.append(f"mesh '{name}' ({where}) must be one of {', '.join(MESH_FORMATS)}")
    if missing:
        raise ConfigError("\n".join(f"{place}: {path}: {problem}" for problem in missing))
    extension = root.find("mujoco")
    extension = ElementTree.SubElement(root, "mujoco") if extension is None else extension
    compiler = extension.find("compiler")
    compiler = ElementTree.SubElement(extension, "compiler") if compiler is None else compiler
    for key in ("discardvisual", "fusestatic", "strippath"):
        compiler.set(key, "false")
    return ElementTree.tostring(root, encoding="unicode")


def _find_mesh(name: str, folder: Path) -> Path | None:
    """Return the file that a URDF means; one of the same name in a format that can be read counts, too."""
    name = name.removeprefix("file://")
    if name.startswith("package://"):
        package, _, rest = name.removeprefix("package://").partition("/")
        roots = [folder.resolve(), *folder.resolve().parents]
        candidates = [root / inner for root in roots for inner in (f"{package}/{rest}", rest)]
    else:
        candidates = [(folder / name).resolve()]
    for file in candidates:
        readable = [file.with_suffix(suffix) for suffix in MESH_FORMATS]
        for candidate in (file, *readable) if file.suffix.lower() in MESH_FORMATS else (*readable, file):
            if candidate.is_file():
                return candidate
    return None


def _check_finite(model: mujoco.MjModel, place: str) -> None:
    """Raise a ConfigError that names the first number of a model that is not finite; MuJoCo accepts such numbers."""
    for field_name in sorted(dir(model), key=lambda name: name.endswith("0")):  # derived fields last
        values = getattr(model, field_name)
        if not (isinstance(values, np.ndarray) and np.issubdtype(values.dtype, np.floating)):
            continue
        if np.isfinite(values).all():
            continue
        rows = values.reshape(len(values), -1)
        row = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        kind, _, what = field_name.partition("_")
        kinds = {"body": model.body, "jnt": model.joint, "geom": model.geom, "site": model.site, "cam": model.camera}
        owner = f" of '{kinds[kind](row).name}'" if kind in kinds else f" {row}"
        shown = ", ".join(f"{number:g}" for number in rows[row])
        raise ConfigError(f"{place}: {kind} {what}{owner} must be finite, got {shown}")


def _take_home(spec: mujoco.MjSpec) -> tuple[dict[str, float], np.ndarray | None]:
    """Remove the keyframes; return of the first the joints' positions, and the pose [7] of the first free joint."""
    home: dict[str, float] = {}
    start: np.ndarray | None = None
    keys = list(spec.keys)
    if keys and len(keys[0].qpos):
        first = 0
        for joint in spec.joints:
            if joint.type in _SCALAR_JOINTS:
                home[joint.name] = float(keys[0].qpos[first])
            elif joint.type == mujoco.mjtJoint.mjJNT_FREE and start is None:
                start = np.array([keys[0].qpos[first + place] for place in range(7)])
            first += _QPOS_SIZE[joint.type]
    for key in keys:
        spec.delete(key)
    return home, start


def _take_actuators(spec: mujoco.MjSpec) -> set[str]:
    """Remove the actuators and return the joints they drive; their effort limits become the joints' own."""
    driven: set[str] = set()
    for actuator in list(spec.actuators):
        if actuator.trntype == mujoco.mjtTrn.mjTRN_JOINT:
            driven.add(actuator.target)
            joint = spec.joint(actuator.target)
            limit = abs(actuator.forcerange[1] * actuator.gear[0])
            if limit and not any(joint.actfrcrange):
                joint.actfrcrange = [-limit, limit]
        elif actuator.trntype == mujoco.mjtTrn.mjTRN_TENDON:
            driven |= {wrap.target.name for wrap in spec.tendon(actuator.target).path if wrap.target is not None}
        spec.delete(actuator)
    return driven & {joint.name for joint in spec.joints}


def _fix_inertia(spec: mujoco.MjSpec, compiled: mujoco.MjModel) -> None:
    """Give each body the inertia of its geoms so far: visual geoms are no part of the physics."""
    for body in spec.bodies[1:]:
        found = compiled.body(body.name)
        body.mass, body.inertia = float(found.mass[0]), found.inertia
        body.ipos, body.iquat = found.ipos, found.iquat
        body.fullinertia, body.explicitinertial = np.full(6, np.nan), True
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    spec.compiler.settotalmass = -1.0


def _take_surroundings(spec: mujoco.MjSpec) -> None:
    """Remove what each scene adds itself: lights, and the planes of the file's world."""
    for light in list(spec.lights):
        spec.delete(light)
    planes = [geom for geom in spec.worldbody.geoms if geom.type == mujoco.mjtGeom.mjGEOM_PLANE]
    names = {geom.name for geom in planes if geom.name}
    for pair in list(spec.pairs):
        if names & {pair.geomname1, pair.geomname2}:
            spec.delete(pair)
    for geom in planes:
        spec.delete(geom)


@contextmanager
def collecting_warnings(lines: list[str]) -> Iterator[None]:
    """Add the warnings in the block to ``lines``, each in one line and once, instead of printing them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    lines += dict.fromkeys(line for each in caught if (line := " ".join(str(each.message).split())) not in lines)


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


@dataclass(frozen=True)
class MeshVariant:
    """The mass properties of a mesh as a body's.

    Attributes:
        mass: kg.
        inertia: [3] about the principal axes, kg m^2.
        pos: [3] centre of mass in the body's frame, m.
        quat: [4] orientation of the principal axes, wxyz.
    """

    mass: float
    inertia: np.ndarray
    pos: np.ndarray
    quat: np.ndarray


def measure_mesh(cfg: RigidObjectCfg, path: Path) -> MeshVariant:
    """Return the mass properties of a mesh as this body's; ConfigError where it cannot be read."""
    spec = mujoco.MjSpec()
    spec.add_mesh(name="mesh", file=str(path.expanduser().resolve()))
    body = spec.worldbody.add_body()
    set_mass(body.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="mesh"), cfg)
    try:
        model = spec.compile()
    except ValueError as error:
        raise ConfigError(f"rigid object '{cfg.uid}': cannot use the mesh '{path}': {error}") from error
    return MeshVariant(float(model.body_mass[1]), model.body_inertia[1], model.body_ipos[1], model.body_iquat[1])


def set_mass(geom: mujoco.MjsGeom, cfg: RigidObjectCfg) -> None:
    """Set a geom's mass, or its density where the config has no mass."""
    if cfg.attrs.mass > 0:
        geom.mass = cfg.attrs.mass
    else:
        geom.density = cfg.attrs.density
