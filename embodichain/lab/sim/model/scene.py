"""Compilation of typed configs to one MuJoCo model with its initial state.

Everything of an entity is named ``<uid>/...`` in the model, so that two entities may use the same names.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import cast

import mujoco
import numpy as np

from embodichain.lab.sim.cfg import (
    ArticulationCfg,
    CameraCfg,
    ContactSensorCfg,
    EmissionLightCfg,
    LightCfg,
    MarkerCfg,
    RigidObjectCfg,
    RigidObjectGroupCfg,
    RobotCfg,
    SimulationManagerCfg,
)
from embodichain.lab.sim.model import drives, model_files, terrain
from embodichain.lab.sim.model.terrain import TerrainCfg, TerrainHeights
from embodichain.lab.sim.shapes import CapsuleCfg, CubeCfg, CylinderCfg, MeshCfg, PlaneCfg, SphereCfg
from embodichain.utils import ConfigError, logger, nearest, replace, unknown_name

RENDER_CAMERA = "render"
"""The camera that the renderers move."""
_RENDER_CAMERA = {"name": RENDER_CAMERA, "proj": mujoco.mjtProjection.mjPROJ_PERSPECTIVE}
GYMNASIUM = "gymnasium/"
"""Prefix of the names of the scenes in the package gymnasium, for its MuJoCo tasks."""
_LARGEST_IMAGE = (1920, 1080)
_PENETRATION = 1e-3  # m, deeper than resting contacts are, which give way by some tenths of a millimetre
_PAIRS_SHOWN = 4
CENTRED = 1e-6
"""Largest distance, along each axis, of a centre of mass from the origin of a body that counts as centred, m."""

# Collision bits: objects touch everything; robots and articulations touch each other, but nothing of their own kind.
# contype, conaffinity:
_OBJECT_BITS, _ROBOT_BITS, _ARTICULATION_BITS, _NO_BITS = (1, 7), (2, 5), (4, 3), (0, 0)

_RESERVED_UIDS = ("ground", "world")  # names that the model has already
_GEOM = mujoco.mjtGeom

EntityCfg = ArticulationCfg | RigidObjectCfg | RigidObjectGroupCfg | MarkerCfg | LightCfg | CameraCfg | ContactSensorCfg


def member_cfgs(cfg: RigidObjectGroupCfg, place: str = "") -> dict[str, RigidObjectCfg]:
    """Return the configs of a group's members by name; their uids are ``<uid>_<name>``."""
    members = cfg.rigid_objects
    if cfg.folder_path is not None:
        folder = Path(cfg.folder_path).expanduser()
        files = sorted(folder.glob(f"*{cfg.ext}"))[: cfg.max_num]
        if not files:
            place = place or f"rigid object group '{cfg.uid}'"
            raise ConfigError(f"{place}.folder_path: no files '*{cfg.ext}' in {folder.resolve()}")
        template = next(iter(members.values()))
        members = {file.stem: replace(template, shape=MeshCfg(fpath=str(file))) for file in files}
    return {
        name: replace(member, uid=f"{cfg.uid}_{name}", body_type=cfg.body_type)  # names with '/' are refused as uids
        for name, member in members.items()
    }


@dataclass(kw_only=True)
class SceneContents:
    """The entities of a scene, by uid, and their names in the model.

    Attributes:
        joints: joints of each articulation in order: name in its file -> name in the model.
        links: bodies of each articulation, likewise.
        parts: joint names of each robot's control parts.
        contact_sensors: the sensors of the net contact force, by ``<uid>`` or ``<uid>/<link>``.
        sensed_links: links of each contact sensor of the config.
        variants: models of the meshes of each rigid body with several, each alone; the configured one is the first.
        terrain: the surface of the ground; None: a plane.
        changes: changes that the scene makes to each articulation's files, one per line.
    """

    joints: dict[str, dict[str, str]] = field(default_factory=dict)
    links: dict[str, dict[str, str]] = field(default_factory=dict)
    parts: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    contact_sensors: dict[str, str] = field(default_factory=dict)
    sensed_links: dict[str, list[str]] = field(default_factory=dict)
    variants: dict[str, list[mujoco.MjModel]] = field(default_factory=dict)
    terrain: TerrainHeights | None = None
    changes: dict[str, list[str]] = field(default_factory=dict)


@dataclass(kw_only=True)
class CompiledScene(SceneContents):
    """The compiled model and its contents.

    Attributes:
        model: physics model, without visual geoms; its keyframe 0 is the initial state, drive targets included.
        visual_model: model for rendering; the same bodies, joints and states.
        softened: drives that are less stiff than configured, by name, each with its gains as text.
    """

    model: mujoco.MjModel
    visual_model: mujoco.MjModel
    softened: dict[str, str] = field(default_factory=dict)


class SceneBuilder:
    """Collects entities and compiles them. Every scene has a ground, a sky and lights.

    Errors begin with ``place``, an entity's place in the config; without it, with its kind and uid.
    ``entities`` are the configs so far, in their order, by uid, and ``contents`` their names.
    """

    def __init__(self, cfg: SimulationManagerCfg) -> None:
        self.entities: dict[str, EntityCfg] = {}
        self.contents = SceneContents()
        self._init_qpos: dict[str, float] = {}
        self._home: dict[str, float] = {}
        self._controls: dict[str, np.ndarray] = {}
        self._ignored: list[str] = []
        self._warnings: list[str] = []
        self._spec = mujoco.MjSpec()
        option, solver = self._spec.option, cfg.solver
        option.timestep, option.gravity = cfg.physics_dt, np.array(cfg.gravity)
        # Implicit in the joint velocities, so that stiff drives are stable at the substeps of robot learning.
        option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        option.cone, option.tolerance = getattr(mujoco.mjtCone, f"mjCONE_{solver.cone.upper()}"), solver.tolerance
        option.iterations, option.ls_iterations = solver.iterations, solver.ls_iterations
        if not solver.warm_start:
            option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_WARMSTART)
        if not solver.islands:
            option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
        terrain.add_surroundings(self._spec)
        ground = self._spec.geom("ground")
        ground.contype, ground.conaffinity = _OBJECT_BITS

    def add(self, cfg: EntityCfg, place: str = "") -> None:
        """Add an entity; the first light replaces the default sun. ConfigError where its config does not fit."""
        if isinstance(cfg, RigidObjectGroupCfg):
            for name, member in member_cfgs(cfg, place).items():
                self.add(member, f"{place}.rigid_objects.{name}" if place else "")
        uid, where = cfg.uid, f"{place}.uid: " if place else ""
        if not uid or "/" in uid or not uid.isprintable() or uid in _RESERVED_UIDS:
            raise ConfigError(
                f"{where}uid {uid!r} cannot be used: it must not be empty, have a '/' or a control character, or be "
                f"one of {', '.join(_RESERVED_UIDS)}"
            )
        if uid in self.entities:
            known = ", ".join(sorted(self.entities))
            raise ConfigError(f"{where}uid '{uid}' is used twice; there are already: {known}")
        self.entities[uid] = cfg
        match cfg:
            case RigidObjectCfg():
                self._add_rigid_object(cfg, place or f"rigid object '{uid}'")
            case ArticulationCfg():
                kind = "robot" if isinstance(cfg, RobotCfg) else "articulation"
                self._add_articulation(cfg, place or f"{kind} '{uid}'")
            case MarkerCfg():  # a visible body without physics
                geom = self._add_shape(cfg, f"marker '{uid}'", mocap=True)
                geom.rgba, geom.mass = np.array(cfg.rgba), 0.0
                geom.contype, geom.conaffinity = _NO_BITS
            case LightCfg():
                terrain.add_light(self._spec, cfg)
            case ContactSensorCfg():
                self._add_contact_sensor(cfg, place or f"sensor '{uid}'")

    def _add_rigid_object(self, cfg: RigidObjectCfg, place: str) -> None:
        if isinstance(cfg.shape, PlaneCfg) and cfg.body_type != "static":
            raise ConfigError(f"{place}.body_type: a Plane must have body_type 'static', got '{cfg.body_type}'")
        geom = self._add_shape(cfg, place, mocap=cfg.body_type == "kinematic")
        if cfg.body_type == "dynamic":
            geom.parent.add_joint(name=cfg.uid, type=mujoco.mjtJoint.mjJNT_FREE)
        geom.name = cfg.uid
        model_files.set_mass(geom, cfg)
        _finish_geom(geom, cfg)
        if cfg.sense_contacts:
            self._sense_contacts(cfg.uid, cfg.uid)
        attrs = cfg.attrs
        ignored = [f.name for f in fields(attrs) if f.default is None and getattr(attrs, f.name) is not None]
        default = type(attrs)().static_friction
        ignored += ["static_friction"] if attrs.static_friction not in (default, attrs.dynamic_friction) else []
        ignored += ["restitution"] if attrs.restitution else []
        self._ignored += [f"{cfg.uid}.attrs.{name}" for name in ignored]

    def vary_inertia(self, uid: str) -> None:
        """Let centre of mass and principal axes of a rigid body, or of links, differ between environments."""
        for body in self.contents.links.get(uid, {uid: uid}).values():
            self._spec.body(body).simple = 0

    def add_mesh_variants(self, cfg: RigidObjectCfg, paths: Sequence[Path]) -> None:
        """Give a rigid body further meshes to choose from in each environment."""
        self.vary_inertia(cfg.uid)
        body = self._spec.body(cfg.uid)
        files = [Path(cast(MeshCfg, cfg.shape).fpath), *paths]
        self.contents.variants[cfg.uid] = [model_files.compile_mesh(cfg, path) for path in files]
        for i, path in enumerate(paths, start=1):
            name = f"{cfg.uid}/variant{i}"
            self._spec.add_mesh(name=name, file=str(path))
            geom = body.add_geom(name=name, type=_GEOM.mjGEOM_MESH, meshname=name, mass=0.0)
            _finish_geom(geom, cfg)

    def _add_articulation(self, cfg: ArticulationCfg, place: str) -> None:
        """Add an articulation, or a robot, with a position drive on every joint that can have one."""
        built = model_files.assemble(cfg, place)
        spec, contents = built.spec, self.contents
        built.changes += drives.set_drives(spec, built.joints, built.undriven, cfg.drive_pros, place)
        if cfg.collision_links is not None:
            kept, where = cfg.collision_links, f"{place}.collision_links"
            drives.limit_collisions(spec, built.links, built.ground_pairs, kept, where)
        own = _ROBOT_BITS if isinstance(cfg, RobotCfg) else _ARTICULATION_BITS
        for geom in spec.geoms:  # of loose things, tables and doors: objects that touch as they do in the file
            geom.contype, geom.conaffinity = np.where((geom.contype, geom.conaffinity), _OBJECT_BITS, _NO_BITS)
        for geom in (geom for tree in built.trees for geom in spec.body(tree).find_all("geom")):
            if geom.contype or geom.conaffinity:
                geom.contype, geom.conaffinity = own
        built.changes.append("links touch everything but each other, and other robots or articulations of their kind")
        with model_files.collecting_warnings([]):  # of merging two files' defaults and options
            self.entities[cfg.uid] = model_files.place_base(self._spec, built, cfg, place)
        contents.changes[cfg.uid] = built.changes
        joints = contents.joints[cfg.uid] = {name: f"{cfg.uid}/{full}" for name, full in built.joints.items()}
        links = contents.links[cfg.uid] = {name: f"{cfg.uid}/{full}" for name, full in built.links.items()}
        for link in drives.match_names(cfg.sense_contacts, list(links), f"{place}.sense_contacts", "link"):
            self._sense_contacts(f"{cfg.uid}/{link}", links[link])
        if isinstance(cfg, RobotCfg):
            self._add_control_parts(cfg, built, place)
        if cfg.init_qpos is None:
            self._home |= {joints[name]: q for name, q in built.home.items()}
        else:
            given, where = cfg.init_qpos, f"{place}.init_qpos"
            if len(given) != len(joints):
                raise ConfigError(f"{where}: has {len(given)} values for {len(joints)} joints: {', '.join(joints)}")
            for name, q in zip(joints, given, strict=True):
                low, high = built.ranges.get(name, (q, q))
                if not low <= q <= high:
                    unit = "m" if self._spec.joint(joints[name]).type == mujoco.mjtJoint.mjJNT_SLIDE else "rad"
                    raise ConfigError(f"{where}: joint '{name}' at {q:g} is outside {low:g} to {high:g} {unit}")
                self._init_qpos[joints[name]] = q
        self._controls |= {f"{cfg.uid}/{name}": control for name, control in built.controls.items()}
        self._warnings += [f"{place}: {warning}" for warning in built.warnings]
        if cfg.drive_pros.max_velocity is not None:
            self._ignored.append(f"{cfg.uid}.drive_pros.max_velocity (by physics)")

    def _add_control_parts(self, cfg: RobotCfg, built: model_files.Assembly, place: str) -> None:
        parts = {part: joints for part, joints in built.parts.items() if joints}
        if cfg.control_parts is not None:
            parts = {
                part: drives.match_driven(patterns, list(built.joints), built.undriven, f"{place}.control_parts.{part}")
                for part, patterns in cfg.control_parts.items()
            }
        self.contents.parts[cfg.uid] = parts
        for part, solver in cfg.solver_cfg.items():
            if part not in parts:
                raise ConfigError(f"{place}.solver_cfg: {unknown_name('control part', part, parts)}")
            unused = ("class_type", "ur_type", "urdf_path", "joint_names")
            given = [name for name in unused if getattr(solver, name) is not None]
            self._ignored += [f"{cfg.uid}.solver_cfg.{part}.{name}" for name in given]

    def _add_contact_sensor(self, cfg: ContactSensorCfg, place: str) -> None:
        """Sense force, position and velocity of an articulation's links, by default the first robot's."""
        robots = [entity.uid for entity in self.entities.values() if isinstance(entity, RobotCfg)]
        entity = cfg.entity or (robots[0] if robots else "robot")
        if entity not in self.entities:
            raise ConfigError(f"{place}.entity: {unknown_name('robot or articulation', entity, self.contents.links)}")
        if entity in self.contents.links:  # else its own error is reported
            names, links = f"{place}.link_names", self.contents.links[entity]
            found = drives.sense_links(self._spec, cfg.uid, cfg.link_names, links, f"{entity}/", names)
            self.contents.sensed_links[cfg.uid] = found

    def names(self) -> dict[str, dict[str, list[str]]]:
        """Return the names of joints and links, and the links of contact sensors (``sensed``), by uid."""
        return {
            "joints": {uid: list(names) for uid, names in self.contents.joints.items()},
            "links": {uid: list(names) for uid, names in self.contents.links.items()},
            "sensed": self.contents.sensed_links,
        }

    def add_terrain(self, cfg: TerrainCfg) -> None:
        """Replace the level ground; robots with a free base start on the first cell."""
        self.contents.terrain = terrain.make_heights(cfg)
        terrain.lay_terrain(self._spec, self.contents.terrain)

    def set_emission_light(self, cfg: EmissionLightCfg) -> None:
        """Set the ambient light."""
        self._spec.visual.headlight.ambient = terrain.ambient_of(cfg)

    def _sense_contacts(self, name: str, body: str) -> None:
        full = self.contents.contact_sensors[name] = f"{body}/contacts"
        self._spec.add_sensor(name=full, objtype=mujoco.mjtObj.mjOBJ_BODY, objname=body, **drives.NET_FORCE)

    def compile(self) -> CompiledScene:
        """Compile the model; keys without a counterpart in MuJoCo are listed in one warning."""
        self._spec.add_key(name="init")
        camera = self._spec.worldbody.add_camera(**_RENDER_CAMERA)  # its pose and lens are set for every image
        try:
            with model_files.collecting_warnings(self._warnings):
                visual_model = self._spec.compile()
                self._spec.delete(camera)
                self._spec.compiler.discardvisual = True  # they cost the physics about a sixth of its speed
                model = self._spec.compile()
        except ValueError as error:
            raise ConfigError(f"the scene cannot be compiled: {error}") from error
        for cfg in self.entities.values():
            if isinstance(cfg, RigidObjectCfg) and cfg.body_type == "dynamic":
                self._set_damping(model, cfg)
            elif isinstance(cfg, ArticulationCfg) and cfg.drive_pros.drive_type == "acceleration":
                drives.scale_by_inertia(model, self.contents.joints[cfg.uid].values())
        write_keyframe(model, self._init_qpos, self._home, self._controls)
        if self.contents.terrain is not None:
            for joint in np.flatnonzero(model.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE)):
                if model.body(model.jnt_bodyid[joint]).name.partition("/")[0] in self.contents.parts:
                    first = model.jnt_qposadr[joint]
                    model.key_qpos[0][first : first + 3] += self.contents.terrain.origins[0, 0]
        softened = drives.soften_stiff_drives(model)
        for warning in self._warnings:
            logger.log_warning(warning)
        if self._ignored:
            logger.log_warning(f"without counterpart in MuJoCo, not used: {', '.join(sorted(self._ignored))}")
        warn_of_collisions(model)
        return CompiledScene(model=model, visual_model=visual_model, softened=softened, **vars(self.contents))

    def _set_damping(self, model: mujoco.MjModel, cfg: RigidObjectCfg) -> None:
        """Damp a free body: force = rate * mass * velocity, and likewise about the axes of its free joint.

        The joint is at the body's origin: a body with its centre of mass elsewhere is not damped along the axes, since
        that would turn it.
        """
        joint = model.joint(cfg.uid)
        body, dof = model.body(joint.bodyid[0]), joint.dofadr[0]
        axes = np.zeros(9)
        mujoco.mju_quat2Mat(axes, body.iquat)
        linear = cfg.attrs.linear_damping
        if np.abs(body.ipos).max() > CENTRED:
            if linear not in (0.0, type(cfg.attrs)().linear_damping):
                self._ignored.append(f"{cfg.uid}.attrs.linear_damping (its centre of mass is not its origin)")
            linear = 0.0
        model.dof_damping[dof : dof + 3] = linear * body.mass
        model.dof_damping[dof + 3 : dof + 6] = cfg.attrs.angular_damping * axes.reshape(3, 3) ** 2 @ body.inertia

    def _add_shape(self, cfg: RigidObjectCfg | MarkerCfg, place: str, mocap: bool) -> mujoco.MjsGeom:
        """Add a body of one shape; return the shape."""
        quat = model_files.quat_of_degrees(cfg.init_rot)
        body = self._spec.worldbody.add_body(name=cfg.uid, pos=cfg.init_pos, quat=quat, mocap=mocap)
        match cfg.shape:
            case CubeCfg(size=size):
                return body.add_geom(type=_GEOM.mjGEOM_BOX, size=[edge / 2 for edge in size])
            case SphereCfg(radius=radius):
                return body.add_geom(type=_GEOM.mjGEOM_SPHERE, size=[radius, 0, 0])
            case CylinderCfg(radius=radius, height=height):
                return body.add_geom(type=_GEOM.mjGEOM_CYLINDER, size=[radius, height / 2, 0])
            case CapsuleCfg(radius=radius, height=height):
                return body.add_geom(type=_GEOM.mjGEOM_CAPSULE, size=[radius, height / 2, 0])
            case PlaneCfg():
                return body.add_geom(type=_GEOM.mjGEOM_PLANE, size=[0, 0, 1])
            case MeshCfg(fpath=fpath):
                path = Path(fpath).expanduser().resolve()
                if not path.is_file():
                    raise ConfigError(f"{place}.shape.fpath: no such mesh file: {path}")
                self._spec.add_mesh(name=cfg.uid, file=str(path))
                return body.add_geom(type=_GEOM.mjGEOM_MESH, meshname=cfg.uid)


def _finish_geom(geom: mujoco.MjsGeom, cfg: RigidObjectCfg) -> None:
    geom.rgba = np.array(cfg.rgba)
    geom.friction = np.array([cfg.attrs.dynamic_friction, 0.005, 0.0001])
    geom.margin = cfg.attrs.rest_offset
    geom.contype, geom.conaffinity = _OBJECT_BITS if cfg.attrs.enable_collision else _NO_BITS


def write_keyframe(
    model: mujoco.MjModel, init_qpos: Mapping[str, float], home: Mapping[str, float], controls: Mapping[str, np.ndarray]
) -> None:
    """Make keyframe 0 the initial state, with every drive's target at its joint's position.

    Args:
        model: joints without a position in ``init_qpos`` or ``home`` are at zero, or at the nearest limit.
        init_qpos: positions by joint; joints that mimic others follow from these.
        home: positions of a file's own keyframe by joint.
        controls: control and activations [1 + na] of actuators that are no drives, by name.
    """
    qpos = model.key_qpos[0]
    limited = (model.jnt_type >= int(mujoco.mjtJoint.mjJNT_SLIDE)) & model.jnt_limited.astype(bool)
    address = model.jnt_qposadr[limited]
    qpos[address] = np.clip(qpos[address], *model.jnt_range[limited].T)
    own = {model.joint(name).id for name in home}
    for name, q in {**home, **init_qpos}.items():
        qpos[model.jnt_qposadr[model.joint(name).id]] = q
    for follower, leader, coefficients in drives.mimics(model):
        if follower not in own:
            one, two = model.jnt_qposadr[follower], model.jnt_qposadr[leader]
            moved = qpos[two] - model.qpos0[two]
            qpos[one] = model.qpos0[one] + np.polynomial.polynomial.polyval(moved, coefficients)
    for actuator, joint in drives.driven_joints(model):
        model.key_ctrl[0][actuator] = qpos[model.jnt_qposadr[joint]]
    for name, start in controls.items():
        actuator, first = model.actuator(name).id, model.actuator_actadr[model.actuator(name).id]
        model.key_ctrl[0][actuator] = start[0]
        model.key_act[0][first : first + len(start) - 1] = start[1:]


def warn_of_collisions(model: mujoco.MjModel) -> None:
    """Log one warning with the bodies that penetrate each other in the initial state, and the depth."""
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_fwdPosition(model, data)
    names = [model.body(b).name if b else model.geom(g).name or "world" for g, b in enumerate(model.geom_bodyid)]
    depths: dict[tuple[str, str], float] = {}
    for contact in data.contact:
        pair = names[contact.geom[0]], names[contact.geom[1]]
        depths[pair] = max(depths.get(pair, 0.0), -float(contact.dist))
    deep = sorted(((depth, pair) for pair, depth in depths.items() if depth > _PENETRATION), reverse=True)
    if deep:
        shown = [f"'{one}' and '{two}' by {1000 * depth:.1f} mm" for depth, (one, two) in deep[:_PAIRS_SHOWN]]
        more = f", and {len(deep) - _PAIRS_SHOWN} more pairs" if len(deep) > _PAIRS_SHOWN else ""
        logger.log_warning(f"initial poses are in collision: {', '.join(shown)}{more}")


def scene_path(name: str) -> Path:
    """Return the file of a scene: a path, or ``gymnasium/<file>``; ConfigError where there is none."""
    if name.startswith(GYMNASIUM):
        package = importlib.util.find_spec("gymnasium")
        assert package is not None and package.origin is not None  # noqa: PT018
        folder = Path(package.origin).parent / "envs" / "mujoco" / "assets"
        path = folder / name.removeprefix(GYMNASIUM)
        if not path.is_file():
            known = sorted(GYMNASIUM + file.name for file in folder.glob("*.xml"))
            raise ConfigError(f"no scene '{name}' in gymnasium.{nearest(name, known)} There are: {', '.join(known)}")
        return path
    path = Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(f"no such file: {path.absolute()}")
    return path


def compile_scene_file(name: str) -> CompiledScene:
    """Compile a scene, named as for :func:`scene_path`, for physics and for rendering.

    Physics runs on the model that MuJoCo makes of the file, bit for bit: its options, contacts and sensors, its geoms
    that are only visible, too. A file without keyframes gets one, of the file's reference pose. The model for rendering
    has in addition room for large images, and the camera that the ray tracer moves.
    """
    path = scene_path(name)
    heard: list[str] = []
    try:
        with model_files.collecting_warnings(heard):
            spec = mujoco.MjSpec.from_file(str(path))
            if not list(spec.keys):
                spec.add_key(name="init")
            model = spec.compile()
            spec.visual.global_.offwidth, spec.visual.global_.offheight = _LARGEST_IMAGE
            spec.worldbody.add_camera(**_RENDER_CAMERA)
            visual_model = spec.compile()
    except (LookupError, ValueError) as error:  # a LookupError for an encoding that is none
        raise ConfigError(f"scene '{name}': {' '.join(str(error).split())}") from error
    if not name.startswith(GYMNASIUM):  # which a user cannot change
        for warning in heard:
            logger.log_warning(f"scene '{name}': {warning}")
    return CompiledScene(model=model, visual_model=visual_model)
