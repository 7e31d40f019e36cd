"""Robots and articulations from files: URDF, MJCF, bundled assets and models of the MuJoCo Menagerie.

The compiled file is the truth: masses, effort limits, couplings and the first keyframe are read from what MuJoCo makes
of it. A scene changes some of it, such as the drives of joints and the floor; each change is listed.

An articulation may have several parts. In its spec the first part's elements keep their names; the others' are
``<part>/<name>``. Outside, everything has its own name where that is unique. Parts of a side (``left_arm``) have the
side before all their names.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import mujoco
import numpy as np
import torch

from embodichain.lab.sim.assets import UR_TYPES, asset_spec, bundled_assets
from embodichain.lab.sim.cfg import COMPONENT_TYPES, ArticulationCfg, RigidObjectCfg, RobotCfg, URDFComponentCfg
from embodichain.lab.sim.kinematics import frame_pose, pos_quat
from embodichain.lab.sim.math import quat_from_euler
from embodichain.lab.sim.model import drives
from embodichain.lab.sim.model.terrain import GROUND
from embodichain.utils import ConfigError, install_extra, placed, raise_problems, replace, unknown_name

MENAGERIE = "menagerie/"
"""Prefix of the names of the MuJoCo Menagerie's models."""
MESH_FORMATS = (".obj", ".stl", ".msh")
"""Formats of meshes that can be read."""
FLANGE_NAMES = ("tool0", "attachment_site", "flange")
"""Names of the site or link where a tool is mounted."""
_SCALAR_JOINTS = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
SEEN_GROUPS = 3
"""Number of rendered groups: 0, 1 and 2, as in the engine's own rendering."""
_PAIR_KEYS = ("condim", "friction", "gap", "margin", "solimp", "solref", "solreffriction")
_MEDIUM = ("density", "viscosity", "wind")
_OPTION_WORDS = {"integrator": mujoco.mjtIntegrator, "cone": mujoco.mjtCone, "solver": mujoco.mjtSolver}
_OPTION_FLAGS = {"disableflags": mujoco.mjtDisableBit, "enableflags": mujoco.mjtEnableBit}


@dataclass
class ModelContents:
    """A model as its maker wrote it, without drives of joints, sensors, keyframes, lights and floor.

    Attributes:
        spec: bodies, joints, geoms, equalities, and actuators of other things than one joint.
        roots: names in the spec of the bodies in the world that the robot consists of; other things are loose.
        undriven: joints without a drive: no actuator of the file moves them; without actuators: they mimic another,
            or move a vertex of a flex.
        home: initial positions of joints where the file has a keyframe, rad or m.
        ranges: lower and upper limits of the limited joints, rad or m.
        controls: names of the actuators in ``spec``, each with its control and activations at the start, [1 + na].
        ground_pairs: contacts of geoms with the file's floor: a geom's name in the spec, and the contact's parameters.
        changes: differences from the file, one per line.
        warnings: warnings about the file, MuJoCo's and of meshes left out.
        start: [7] position and quaternion wxyz of the first root, of the first keyframe where it moves freely.
        floor: height of the file's own ground, m; None without one.
    """

    spec: mujoco.MjSpec
    roots: list[str] = field(default_factory=list)
    undriven: set[str] = field(default_factory=set)
    home: dict[str, float] = field(default_factory=dict)
    ranges: dict[str, list[float]] = field(default_factory=dict)
    controls: dict[str, np.ndarray] = field(default_factory=dict)
    ground_pairs: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    start: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]))
    floor: float | None = None


@dataclass
class ModelFile(ModelContents):
    """The model of one file.

    Attributes:
        joints: names of its hinges and slides, in order.
        links: names of its bodies.
        sites: poses [4, 4] of its sites in their bodies.
        unseen: visual meshes left out, since their format cannot be rendered.
    """

    joints: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    sites: dict[str, np.ndarray] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)


def load_model(name: str, place: str) -> ModelFile:
    """Read a file (URDF or MJCF), a bundled asset, or ``menagerie/<model>[/<file>]``, and check that it compiles.

    The last needs the extra ``menagerie``, which downloads it at its first use.
    """
    model = ModelFile(mujoco.MjSpec())
    with placed(f"{place}: "), collecting_warnings(model.warnings):
        try:
            spec = model.spec = _read(name, model.unseen)
        except (ConfigError, FileNotFoundError) as error:
            raise ConfigError(str(error)) from error
        except (LookupError, RecursionError, ValueError, ElementTree.ParseError) as error:  # LookupError: an encoding
            raise ConfigError(f"cannot read '{name}': {' '.join(str(error).split())}") from error
        for number, joint in enumerate(spec.joints):
            joint.name = joint.name or f"joint{number}"
            if joint.type == mujoco.mjtJoint.mjJNT_BALL:
                raise ConfigError(f"'{name}': joint '{joint.name}' is a ball joint; only hinges and slides are known")
        for number, body in enumerate(spec.bodies):
            body.name = body.name or f"body{number}"
        try:
            plain = spec.compile()
        except ValueError as error:
            raise ConfigError(_reason(spec, name, error)) from error
        if plain.nbody == 1:
            raise ConfigError(f"'{name}' has no body")
        _check_finite(plain, name)
    model.joints = [joint.name for joint in spec.joints if joint.type in _SCALAR_JOINTS]
    model.links = [body.name for body in spec.bodies]
    sites = map(plain.site, range(plain.nsite))  # compiled: in a file they may have angles, ends or a frame
    model.sites = {site.name: frame_pose(site.pos, site.quat) for site in sites}
    start = mujoco.MjData(plain)
    if plain.nkey:
        mujoco.mj_resetDataKeyframe(plain, start, 0)
    _read_state(model, plain, start)
    _take_actuators(model, plain, start)
    if name.lower().endswith(".urdf"):
        own = {body.name: plain.body(body.name).mass[0] for body in spec.bodies if not body.explicitinertial}
        if weighed := ", ".join(f"{link} ({mass:.4g} kg)" for link, mass in own.items() if mass):
            model.changes.append(f"links without an inertial have their shapes' mass at 1000 kg/m3: {weighed}")
    _fix_derived(spec, plain)
    _take_surroundings(model, plain)
    _hide_collision_shapes(model)
    # Room that a file reserves, for keyframes, contacts and users' numbers: a scene has its own.
    spec.nkey, spec.njmax, spec.nconmax, spec.memory = 0, -1, -1, -1
    for kind in ("body", "jnt", "geom", "site", "cam", "tendon", "actuator", "sensor"):
        setattr(spec, f"nuser_{kind}", -1)
    return model


def _reason(spec: mujoco.MjSpec, name: str, error: ValueError) -> str:
    """Return why a model does not compile: a mesh that is not there, or MuJoCo's words, for a URDF in its own."""
    folder = Path(spec.modelfiledir) / spec.meshdir
    for mesh in spec.meshes:
        if mesh.file and mesh.file not in spec.assets and not (file := folder / mesh.file).is_file():
            return f"mesh '{file}' is not there"
    text = f"cannot compile '{name}': {' '.join(str(error).split())}"
    if name.lower().endswith(".urdf") and "balanceinertia" in text:
        text += ' (in a URDF: <mujoco><compiler balanceinertia="true"/></mujoco> inside <robot>)'
    return text


def _read(name: str, unseen: list[str]) -> mujoco.MjSpec:
    if name.startswith(MENAGERIE):
        return _from_menagerie(name)
    path = Path(name).expanduser()
    if not path.is_file():
        return asset_spec(name)
    if path.suffix.lower() == ".xacro":
        raise ConfigError(f"'{name}': expand it first: xacro {path.name} > {path.stem.removesuffix('.urdf')}.urdf")
    if path.suffix.lower() == ".urdf":
        return mujoco.MjSpec.from_string(urdf_text(path, unseen))
    return mujoco.MjSpec.from_file(str(path))


def _from_menagerie(name: str) -> mujoco.MjSpec:
    try:
        import mujoco_menagerie  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f"'{name}' needs mujoco-menagerie: {install_extra('menagerie')}") from error
    model, _, entry = name.removeprefix(MENAGERIE).partition("/")
    try:
        robot = mujoco_menagerie.get(model)
        return robot.spec(entry or robot.default_model)
    except mujoco_menagerie.MenagerieError as error:
        raise ConfigError(f"'{name}': {error}") from error


def urdf_text(path: Path, unseen: list[str]) -> str:
    """Return a URDF with absolute mesh paths, and with the visuals and fixed links that MuJoCo leaves out by default.

    Visual meshes that cannot be rendered are added to ``unseen``.
    """
    root = ElementTree.fromstring(path.read_bytes())
    if root.tag != "robot":
        raise ConfigError(f"cannot read '{path}': a URDF's root is <robot>, got <{root.tag}>")
    missing: list[str] = []
    parts = [(link, part) for link in root.iter("link") for part in link if part.tag in ("visual", "collision")]
    for link, part in parts:
        if (mesh := part.find("geometry/mesh")) is None:
            continue
        name = mesh.get("filename", "")
        named = f"'{name}' ({part.tag} of link '{link.get('name')}')"
        file = _find_mesh(name, path.parent)
        if file is None:
            missing.append(f"{path}: mesh {named} is not there")
        elif file.suffix.lower() in MESH_FORMATS:
            mesh.set("filename", str(file))
        elif part.tag == "visual":
            link.remove(part)
            unseen.append(named)
        else:
            missing.append(f"{path}: mesh {named} must be one of {', '.join(MESH_FORMATS)}")
    raise_problems([*missing, *_joint_problems(root, path)])
    element = root
    for tag in ("mujoco", "compiler"):
        child = element.find(tag)
        element = ElementTree.SubElement(element, tag) if child is None else child
    element.attrib |= dict.fromkeys(("discardvisual", "fusestatic", "strippath"), "false")
    return ElementTree.tostring(root, encoding="unicode")


def _joint_problems(root: ElementTree.Element, path: Path) -> Iterator[str]:
    """Yield the mistakes in a URDF's joints that MuJoCo accepts in silence."""
    joints = root.findall("joint")
    names = [joint.get("name") for joint in joints]
    for i, joint in enumerate(joints):
        place = f"{path}: joint '{names[i]}'"
        if names[i] in names[:i]:
            yield f"{place}: there is another of this name"
        mimic, limit, dynamics = (joint.find(tag) for tag in ("mimic", "limit", "dynamics"))
        limit = None if joint.get("type") == "continuous" else limit
        if mimic is not None and mimic.get("joint") not in names:
            yield f"{place}: mimics '{mimic.get('joint')}', which is not there"
        if limit is not None and float(limit.get("lower", 0)) > float(limit.get("upper", 0)):
            yield f"{place}: its lower limit {limit.get('lower')} is above the upper one {limit.get('upper')}"
        if dynamics is not None and float(dynamics.get("damping", 0)) < 0:
            yield f"{place}: its damping {dynamics.get('damping')} is below 0"


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


def _check_finite(model: mujoco.MjModel, file: str) -> None:
    """Raise a ConfigError that names the first number of a model that is not finite; MuJoCo accepts such numbers."""
    for field_name in sorted(dir(model), key=lambda name: name.endswith("0")):  # derived fields last
        values = getattr(model, field_name)
        if not isinstance(values, np.ndarray) or values.dtype.kind != "f" or np.isfinite(values).all():
            continue
        rows = values.reshape(len(values), -1)
        row = int(np.flatnonzero(~np.isfinite(rows).all(axis=1))[0])
        kind, _, what = field_name.partition("_")
        kinds = {"body": model.body, "jnt": model.joint, "geom": model.geom, "site": model.site, "cam": model.camera}
        owner = f" of '{kinds[kind](row).name}'" if kind in kinds else f" {row}"
        shown = ", ".join(f"{number:g}" for number in rows[row])
        raise ConfigError(f"'{file}': {kind} {what}{owner} must be finite, got {shown}")


def _read_state(model: ModelFile, plain: mujoco.MjModel, start: mujoco.MjData) -> None:
    """Read limits, roots and the start, and remove the keyframes and sensors."""
    spec, is_scalar = model.spec, np.isin(plain.jnt_type, _SCALAR_JOINTS)
    trees = plain.body_rootid[plain.jnt_bodyid]
    is_free = plain.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE)
    actuated = sorted({joint for i in range(plain.nu) for joint in _moment_arms(plain, i)})
    candidates = trees[actuated], trees[is_scalar], trees[is_free], np.flatnonzero(plain.body_parentid == 0)[1:]
    roots = next((np.unique(bodies) for bodies in candidates if len(bodies)), np.array([], int))
    model.roots = [plain.body(body).name for body in roots]
    for joint in range(plain.njnt):
        name, first = plain.joint(joint).name, plain.jnt_qposadr[joint]
        if is_scalar[joint] and plain.nkey:
            model.home[name] = float(start.qpos[first])
        if is_scalar[joint] and plain.jnt_limited[joint]:
            model.ranges[name] = plain.jnt_range[joint].tolist()
        if is_free[joint] and trees[joint] not in roots:
            _place(spec.body(plain.body(trees[joint]).name), start.qpos[first : first + 7])
    free = np.flatnonzero(is_free & np.isin(trees, roots))
    if len(free):
        model.start = start.qpos[plain.jnt_qposadr[free[0]] :][:7].copy()
    elif len(roots):
        model.start = np.concatenate((plain.body_pos[roots[0]], plain.body_quat[roots[0]]))
    if not plain.nkey and (moved := [plain.joint(i).name for i, _, line in drives.couplings(plain) if line[0]]):
        model.changes.append(f"joints start where their couplings put them: {', '.join(moved)}")
    if len(keys := list(spec.keys)) > 1:
        model.changes.append(f"keyframes after the first are not used: {', '.join(key.name for key in keys[1:])}")
    if start.qvel.any():
        model.changes.append("velocities of the keyframe are not used")
    if sensors := list(spec.sensors):
        model.changes.append(f"sensors of the file are not used: {len(sensors)}")
    for element in (*keys, *sensors):
        spec.delete(element)


def _place(body: mujoco.MjsBody, pose: np.ndarray) -> None:
    """Put a body to a pose [7] in its parent's frame."""
    body.pos, body.quat = pose[:3], pose[3:]
    body.alt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT


def _take_actuators(model: ModelFile, plain: mujoco.MjModel, start: mujoco.MjData) -> None:
    """Remove the actuators of single joints, whose limits become the joints' own; others stay."""
    spec = model.spec
    ranges: dict[int, np.ndarray] = {}
    slopes = {follower: line[1] for follower, _, line in drives.couplings(plain)}
    for i, actuator in enumerate(list(spec.actuators)):
        arms = _moment_arms(plain, i)
        leaders = [joint for joint in arms if joint not in slopes or len(arms) == 1]
        if len(leaders) == 1:
            joint = leaders[0]
            arm = arms.pop(joint) + sum(arms[other] * slopes[other] for other in arms)
            force = np.sort(arm * _force_range(plain, i))
            ranges[joint] = ranges.get(joint, np.zeros(2)) + np.where(np.isnan(force), 0.0, force)
            element = spec.joint(plain.joint(joint).name)  # the motor's rotor and friction stay
            element.armature += float(arm**2 * plain.actuator_armature[i])
            element.damping[0] += float(arm**2 * plain.actuator_damping[i])
            spec.delete(actuator)
            continue
        actuator.name = actuator.name or f"actuator{i}"
        if actuator.name in model.joints:  # the name of a drive
            actuator.name += "_actuator"
        first, count = plain.actuator_actadr[i], plain.actuator_actnum[i]
        model.controls[actuator.name] = np.append(start.ctrl[i], start.act[first : first + count])
    driven = {plain.joint(joint).name for joint in ranges}
    passive = [*slopes, *np.flatnonzero(np.isin(plain.jnt_bodyid, plain.flex_vertbodyid))]
    model.undriven = set(model.joints) - driven if plain.nu else {plain.joint(joint).name for joint in passive}
    if driven:
        names = ", ".join(sorted(driven))
        model.changes.append(
            f"actuators of joints and their gains are replaced by robot.drive_pros of the config: {names}"
        )
    for joint, (low, high) in ranges.items():
        if plain.jnt_actfrclimited[joint]:
            low, high = np.clip((low, high), *plain.jnt_actfrcrange[joint])
        if low < high and np.isfinite((low, high)).all():
            element = spec.joint(plain.joint(joint).name)
            element.actfrclimited, element.actfrcrange = mujoco.mjtLimited.mjLIMITED_TRUE, [low, high]


def _moment_arms(plain: mujoco.MjModel, actuator: int) -> dict[int, float]:
    """Return effort per force of the hinges and slides that an actuator moves; empty where it moves anything else."""
    kind, target = plain.actuator_trntype[actuator], int(plain.actuator_trnid[actuator, 0])
    gear = float(plain.actuator_gear[actuator, 0])
    if kind in (int(mujoco.mjtTrn.mjTRN_JOINT), int(mujoco.mjtTrn.mjTRN_JOINTINPARENT)):
        return {target: gear} if plain.jnt_type[target] in _SCALAR_JOINTS else {}
    if kind != int(mujoco.mjtTrn.mjTRN_TENDON):
        return {}
    wraps = range(plain.tendon_adr[target], plain.tendon_adr[target] + plain.tendon_num[target])
    if any(plain.wrap_type[wrap] != int(mujoco.mjtWrap.mjWRAP_JOINT) for wrap in wraps):
        return {}
    return {int(plain.wrap_objid[wrap]): gear * float(plain.wrap_prm[wrap]) for wrap in wraps}


def _force_range(plain: mujoco.MjModel, actuator: int) -> np.ndarray:
    """Return the lowest and the highest force of an actuator, [2]; infinite where nothing limits it."""
    force = plain.actuator_forcerange[actuator] if plain.actuator_forcelimited[actuator] else [-np.inf, np.inf]
    bias = plain.actuator_biastype[actuator]
    is_zero = bias == int(mujoco.mjtBias.mjBIAS_AFFINE) and not plain.actuator_biasprm[actuator, :3].any()
    is_constant = bias == int(mujoco.mjtBias.mjBIAS_NONE) or is_zero
    is_motor = is_constant and plain.actuator_gaintype[actuator] == int(mujoco.mjtGain.mjGAIN_FIXED)
    if is_motor and plain.actuator_ctrllimited[actuator]:  # its force is its gain times its control
        control = np.sort(plain.actuator_gainprm[actuator, 0] * plain.actuator_ctrlrange[actuator])
        return np.clip(control, *force)
    return np.array(force)


def _fix_derived(spec: mujoco.MjSpec, plain: mujoco.MjModel) -> None:
    """Keep what MuJoCo derives in the file alone: inertias, lengths of springs, poses of welds of two bodies."""
    for body in spec.bodies[1:]:
        found = plain.body(body.name)
        body.mass, body.inertia = float(found.mass[0]), found.inertia
        body.ipos, body.iquat = found.ipos, found.iquat
        body.ialt.type = mujoco.mjtOrientation.mjORIENTATION_QUAT
        body.fullinertia, body.explicitinertial = np.full(6, np.nan), True
    for tendon in spec.tendons:
        tendon.springlength = plain.tendon_lengthspring[tendon.id]
    for weld in (each for each in spec.equalities if each.type == mujoco.mjtEq.mjEQ_WELD):
        bodies = plain.eq_obj1id[weld.id], plain.eq_obj2id[weld.id]
        if plain.eq_objtype[weld.id] == int(mujoco.mjtObj.mjOBJ_BODY) and all(bodies):  # none is the world
            weld.data = plain.eq_data[weld.id]
    spec.compiler.inertiafromgeom = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_FALSE
    spec.compiler.settotalmass, spec.compiler.boundmass, spec.compiler.boundinertia = -1.0, 0.0, 0.0


def _take_surroundings(model: ModelFile, plain: mujoco.MjModel) -> None:
    """Remove what each scene adds itself: lights, and the level planes of the file's world; walls and slopes stay."""
    spec, lights = model.spec, list(model.spec.lights)
    planes = [geom for geom in spec.worldbody.geoms if geom.type == mujoco.mjtGeom.mjGEOM_PLANE]
    planes = [geom for geom in planes if np.allclose(plain.geom_quat[geom.id, 1:3], 0.0, atol=1e-6)]
    names = {geom.name for geom in planes if geom.name}
    pairs = [pair for pair in spec.pairs if pair.geomname1 in names or pair.geomname2 in names]
    for pair in pairs:
        other = pair.geomname2 if pair.geomname1 in names else pair.geomname1
        model.ground_pairs.append((other, {key: np.array(getattr(pair, key)).tolist() for key in _PAIR_KEYS}))
    if lights:
        model.changes.append(f"lights of the file are not used: {len(lights)}")
    if planes:
        model.floor = float(plain.geom_pos[planes[0].id, 2])
        shown = ", ".join(geom.name or "a plane" for geom in planes)
        height = f", at a height of {model.floor:.4g} m" if model.floor else ""
        model.changes.append(f"the scene's ground replaces the file's: {shown}{height}")
    for element in (*lights, *pairs, *planes):
        spec.delete(element)


def _hide_collision_shapes(model: ModelFile) -> None:
    """Hide the collision shapes of bodies that have visual shapes in another group."""
    hidden = 0
    for body in model.spec.bodies[1:]:
        seen = [geom for geom in body.geoms if geom.group < SEEN_GROUPS]
        visual = {geom.group for geom in seen if not (geom.contype or geom.conaffinity)}
        for geom in seen:
            if (geom.contype or geom.conaffinity) and visual - {geom.group}:
                geom.group = SEEN_GROUPS  # the first group that is not rendered
                hidden += 1
    if hidden:
        model.changes.append(f"collision shapes of links with visual shapes are not rendered: {hidden}")


@contextmanager
def collecting_warnings(lines: list[str]) -> Iterator[None]:
    """Add the warnings in the block to ``lines``, each in one line and once, instead of printing them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    lines += dict.fromkeys(line for each in caught if (line := " ".join(str(each.message).split())) not in lines)


@dataclass
class Assembly(ModelContents):
    """One articulation of one or more files; ``undriven``, ``home`` and ``ranges`` are by short name.

    Attributes:
        joints: short name -> name in the spec, of the hinges and slides in joint order.
        links: short name -> name in the spec, of the bodies.
        parts: the driven joints of each part, by short name.
        ends: where the next part is mounted on each part: a body, and the pose [4, 4] in it.
        trees: all parts' ``roots``, names in the spec.
        base_transform: pose of the first part in the articulation's frame, 4x4.
    """

    joints: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)
    ends: dict[str, tuple[str, np.ndarray]] = field(default_factory=dict)
    trees: list[str] = field(default_factory=list)
    base_transform: np.ndarray = field(default_factory=lambda: np.eye(4))


def assemble(cfg: ArticulationCfg, place: str) -> Assembly:
    """Load the parts of an articulation and put them together."""
    components = _components(cfg, place)
    result = Assembly(mujoco.MjSpec())
    for kind, (component, path) in components.items():
        model = load_model(component.urdf_path, path)
        side, pose = kind[: kind.find("_") + 1], np.array(component.transform)
        prefix = f"{kind}/{side}" if result.parts else side
        carriers = (kind.replace("hand", "arm"),) if "hand" in kind else ("torso", "chassis")
        ends = (result.ends[part] for part in carriers if part in result.parts)
        carrier, mount = next(ends, ("world", np.eye(4)))
        if result.parts:
            model.spec.option = result.spec.option  # a scene has one; the parts' own are no reason for a warning
            _fix_roots(model.spec, model.roots)
            if carrier == "world":
                pose = np.linalg.inv(result.base_transform) @ pose
        else:
            result.base_transform, pose, result.start, result.floor = pose, np.eye(4), model.start, model.floor
            result.roots = [prefix + root for root in model.roots]
            result.spec.option = model.spec.option
        if prefix:
            frame = result.spec.body(carrier).add_frame(**pos_quat(mount @ pose))
            result.spec.attach(model.spec, prefix=prefix, frame=frame)
        else:
            result.spec = model.spec
        _add_names(result, model, kind, side, prefix)
        result.trees += [prefix + root for root in model.roots]
        result.controls |= {prefix + name: value for name, value in model.controls.items()}
        result.ground_pairs += [(prefix + geom, values) for geom, values in model.ground_pairs]
        result.changes += model.changes
        result.warnings += model.warnings
        if model.unseen:
            formats, meshes = ", ".join(MESH_FORMATS), "; ".join(model.unseen)
            result.warnings.append(f"not rendered, since they are not {formats}: {meshes}")
    return result


def _components(cfg: ArticulationCfg, place: str) -> dict[str, tuple[URDFComponentCfg, str]]:
    """Return the parts by kind, in building order, each with the place of its model in the config."""
    found: dict[str, tuple[URDFComponentCfg, str]] = {}
    if isinstance(cfg, RobotCfg):
        if cfg.robot_type is not None:
            path = f"{place}.robot_type"
            types = {"URRobot": cfg.ur_type, "FrankaPanda": "panda", "CartPole": "cart_pole"}
            types |= {name: name for name in bundled_assets()}
            asset = {name.lower(): asset for name, asset in types.items()}.get(cfg.robot_type.lower())
            if asset is None:
                raise ConfigError(f"{path}: {unknown_name('robot_type', cfg.robot_type, types)}")
            if asset not in bundled_assets():
                raise ConfigError(f"{path}: {unknown_name('ur_type', asset, UR_TYPES)}")
            found["arm"] = URDFComponentCfg("arm", asset), path
        for i, part in enumerate(cfg.urdf_cfg.components if cfg.urdf_cfg is not None else ()):
            found[part.component_type] = part, f"{place}.urdf_cfg.components[{i}].urdf_path"
    if cfg.fpath is not None:
        found["arm"] = URDFComponentCfg("arm", cfg.fpath), f"{place}.fpath"
    for kind in found:
        arm = kind.replace("hand", "arm")
        if arm not in found:
            raise ConfigError(f"{place}: a '{kind}' needs an arm: fpath, robot_type, or '{arm}' in urdf_cfg.components")
    if not found:
        raise ConfigError(f"{place}: needs an arm: fpath, robot_type, or an 'arm' in urdf_cfg.components")
    return {kind: found[kind] for kind in COMPONENT_TYPES if kind in found}


def _end_of(model: ModelFile, kind: str, spec: mujoco.MjSpec, prefix: str) -> tuple[str, np.ndarray]:
    """Return where the next part is mounted: a body, and the pose in it.

    It is the flange on the last driven link or on a body fixed to it, else any flange of the part, else that link; of a
    chassis, whose driven links are wheels, its base.
    """
    bodies = [spec.body(prefix + name) for name in model.links if name != "world"]
    driven = [name for name in model.joints if name not in model.undriven]
    last = spec.joint(prefix + driven[-1]).parent if driven else bodies[-1]
    near = [last]
    for body in near:
        near += [child for child in body.bodies if not list(child.joints)]
    for body in (*near, *bodies):
        for element in (*body.sites, body):
            if element.name.rpartition("/")[2].removeprefix("left_").removeprefix("right_") in FLANGE_NAMES:
                is_site = isinstance(element, mujoco.MjsSite)
                return body.name, model.sites[element.name.removeprefix(prefix)] if is_site else np.eye(4)
    return (bodies[0] if kind == "chassis" else last).name, np.eye(4)


def _add_names(result: Assembly, model: ModelFile, kind: str, side: str, prefix: str) -> None:
    links = [name for name in model.links if name != "world"]
    short = {name: (prefix if side + name in result.joints else side) + name for name in model.joints}
    result.links |= {(prefix if side + name in result.links else side) + name: prefix + name for name in links}
    result.joints |= {short[name]: prefix + name for name in model.joints}
    result.undriven |= {short[name] for name in model.undriven}
    result.home |= {short[name]: q for name, q in model.home.items()}
    result.ranges |= {short[name]: ends for name, ends in model.ranges.items()}
    result.parts[kind] = [short[name] for name in model.joints if name not in model.undriven]
    result.ends[kind] = _end_of(model, kind, result.spec, prefix)


def place_base(scene: mujoco.MjSpec, built: Assembly, cfg: ArticulationCfg, place: str) -> ArticulationCfg:
    """Put an articulation into the scene, fixed or free, with the medium of its file; list the options that are lost.

    A fixed base takes the whole file along. A free base starts at ``init_pos``; where that is the origin, at its
    position in the file. ``init_rot`` turns it from its orientation in the file; other things stay at their places.
    With ``init_pos`` at the origin, the file's own ground lies in the scene's. Return the config with the base's place.
    """
    pos, turn = np.array(cfg.init_pos), quat_of_degrees(cfg.init_rot)
    lift = np.array([0.0, 0.0, 0.0 if pos.any() else -(built.floor or 0.0)])
    if cfg.fix_base:
        if held := _fix_roots(built.spec, built.roots):
            built.changes.append(f"fix_base holds what moves freely in the file: {', '.join(held)}")
        world, outer, base = built.spec.worldbody, {"pos": pos + lift, "quat": turn}, pos_quat(built.base_transform)
        is_loose = free_joints(built.spec, [body.name for body in world.bodies])
        if (list(world.geoms) or list(world.sites)) and not is_loose and not isinstance(cfg, RobotCfg):
            # Events that move an articulation move this body, and with it the shapes and sites of the file's world.
            frame = scene.worldbody.add_body(name=f"{cfg.uid}/world", **outer).add_frame(**base)
        else:
            frame = scene.worldbody.add_frame(scene.worldbody.add_frame(**outer), **base)
    else:
        frame = scene.worldbody.add_frame(pos=lift)
        _free_root(built, pos if pos.any() else built.start[:3], turn, place)
    theirs = _options(built.spec)
    for name in _MEDIUM:
        if np.any(theirs[name]):
            setattr(scene.option, name, theirs[name])
    own = _options(scene)
    other = [f"{name} {value}" for name, value in theirs.items() if value != own[name] and name not in _MEDIUM]
    if other:
        built.changes.append(f"options of the file that the scene's replace: {', '.join(other)}")
    built.spec.option, built.spec.visual = scene.option, scene.visual  # a scene has one of each
    scene.attach(built.spec, prefix=f"{cfg.uid}/", frame=frame)
    for geom, values in built.ground_pairs:
        scene.add_pair(geomname1=GROUND, geomname2=f"{cfg.uid}/{geom}", **values)
    return replace(cfg, init_pos=tuple((pos + lift).tolist())) if cfg.fix_base else cfg


def quat_of_degrees(angles: Sequence[float]) -> np.ndarray:
    """Return the quaternion wxyz of angles about the fixed x, then y, then z axis, degrees."""
    radians = torch.tensor([math.radians(angle) for angle in angles], dtype=torch.float64)
    return quat_from_euler(radians).numpy()


def _free_root(built: Assembly, pos: np.ndarray, turn: np.ndarray, place: str) -> None:
    """Give the root a free joint and its pose in the world; of several roots it is the one that has a free joint."""
    roots = [root for root in built.roots if free_joints(built.spec, [root])] or built.roots
    if len(roots) != 1:
        raise ConfigError(f"{place}: fix_base false needs one root, got {', '.join(roots)}")
    root = built.spec.body(roots[0])
    if own := [joint.name for joint in root.joints if joint.type != mujoco.mjtJoint.mjJNT_FREE]:
        raise ConfigError(
            f"{place}: fix_base false makes the base move freely, and its root '{root.name}' has joints that move it: "
            f"{', '.join(own)}. Leave fix_base out: they are joints of the robot"
        )
    if not list(root.joints):
        root.add_freejoint()
        built.changes.append(f"fix_base false lets '{root.name}' move freely")
    pose = frame_pose(pos, turn) @ built.base_transform @ frame_pose(np.zeros(3), built.start[3:])
    _place(root, np.concatenate(list(pos_quat(pose).values())))


def _fix_roots(spec: mujoco.MjSpec, roots: Sequence[str]) -> list[str]:
    """Remove the free joints of roots; return the roots that had one."""
    joints = free_joints(spec, roots)
    held = [joint.parent.name for joint in joints]
    for joint in joints:
        spec.delete(joint)
    return held


def free_joints(spec: mujoco.MjSpec, bodies: Sequence[str]) -> list[mujoco.MjsJoint]:
    """Return the free joints of some bodies."""
    joints = [joint for body in bodies for joint in spec.body(body).joints]
    return [joint for joint in joints if joint.type == mujoco.mjtJoint.mjJNT_FREE]


def _options(spec: mujoco.MjSpec) -> dict[str, Any]:
    """Return the options of physics by name, in MuJoCo's words where it has some."""
    names = [name for name in dir(spec.option) if not name.startswith("_")]
    found = {name: np.array(value).tolist() for name in names if not callable(value := getattr(spec.option, name))}
    for name, kind in _OPTION_WORDS.items():
        found[name] = kind(found[name]).name.rpartition("_")[2].lower()
    for name, bits in _OPTION_FLAGS.items():
        words = bits.__members__.items()
        on = [word.rpartition("_")[2].lower() for word, bit in words if "_" in word and bit & found[name]]
        found[name] = " and ".join(on) or "none"
    return found


def compile_mesh(cfg: RigidObjectCfg, path: Path) -> mujoco.MjModel:
    """Return the model of a mesh as this body alone, with its mass; ConfigError where it cannot be read."""
    spec = mujoco.MjSpec()
    spec.add_mesh(name="mesh", file=str(path.expanduser().resolve()))
    body = spec.worldbody.add_body()
    set_mass(body.add_geom(type=mujoco.mjtGeom.mjGEOM_MESH, meshname="mesh"), cfg)
    try:
        return spec.compile()
    except ValueError as error:
        raise ConfigError(f"rigid object '{cfg.uid}': cannot use the mesh '{path}': {error}") from error


def set_mass(geom: mujoco.MjsGeom, cfg: RigidObjectCfg) -> None:
    """Set a geom's density, and its mass where the config has one, which counts then."""
    geom.density = cfg.attrs.density
    if cfg.attrs.mass > 0:
        geom.mass = cfg.attrs.mass
