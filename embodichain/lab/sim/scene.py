"""From typed configs to one compiled MuJoCo model.

Everything of an entity is named ``<uid>/...`` in the model, so that two entities may use the same names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import mujoco
import numpy as np
import torch

from embodichain.lab.sim.assets import asset_path
from embodichain.lab.sim.cfg import (
    ArticulationCfg,
    JointDrivePropertiesCfg,
    MarkerCfg,
    ObjectBaseCfg,
    RigidObjectCfg,
    RobotCfg,
    SimulationManagerCfg,
)
from embodichain.lab.sim.checks import arm_of_robot_type, check_plane, check_uid, mesh_path
from embodichain.lab.sim.math import quat_from_euler
from embodichain.lab.sim.shapes import CapsuleCfg, CubeCfg, CylinderCfg, MeshCfg, PlaneCfg, ShapeCfg, SphereCfg
from embodichain.utils import ConfigError, logger
from embodichain.utils.errors import placed, unknown_name

__all__ = ["CompiledScene", "MeshVariant", "SceneBuilder", "match_names"]

# Collision bits: a robot touches objects and the ground but not itself; objects touch everything.
_ROBOT_BITS = {"contype": 2, "conaffinity": 1}
_OBJECT_BITS = {"contype": 1, "conaffinity": 3}
_NO_BITS = {"contype": 0, "conaffinity": 0}

_GEOM = mujoco.mjtGeom


@dataclass(frozen=True)
class MeshVariant:
    """A mesh that a body may have.

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


@dataclass
class CompiledScene:
    """The compiled model and what was built into it.

    Attributes:
        model: for the physics, without what is only seen; its keyframe 0 is the initial state, drive targets included.
        visual_model: for pictures; the same bodies, joints and states.
        joints: the joint names of each articulation, as the maker's file has them, in joint order.
        parts: for each robot the joint names of its control parts.
        variants: for rigid bodies with several meshes, each of them; the configured one is the first.
    """

    model: mujoco.MjModel
    visual_model: mujoco.MjModel
    joints: dict[str, list[str]] = field(default_factory=dict)
    parts: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    variants: dict[str, list[MeshVariant]] = field(default_factory=dict)


def match_names(patterns: Iterable[str], names: Sequence[str], place: str) -> list[str]:
    """Return the names that any pattern (a name, or a regular expression for all of it) matches, in their order.

    Raises:
        ConfigError: a pattern matches nothing, or is no regular expression.
    """
    found: set[str] = set()
    for pattern in patterns:
        try:
            matches = [name for name in names if name == pattern or re.fullmatch(pattern, name)]
        except re.error as error:
            raise ConfigError(f"{place}: '{pattern}' is no regular expression: {error}") from error
        if not matches:
            raise ConfigError(f"{place}: {unknown_name('joint', pattern, names)}")
        found.update(matches)
    return [name for name in names if name in found]


class SceneBuilder:
    """Collects entities and compiles them. The ground, the sky and the lights are always there."""

    def __init__(self, cfg: SimulationManagerCfg) -> None:
        self._spec = mujoco.MjSpec()
        self._spec.option.timestep = cfg.physics_dt
        self._spec.option.gravity = np.array(cfg.gravity)
        # Implicit in the joint velocities, so that stiff drives are stable at the substeps of robot learning.
        self._spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        self._uids: set[str] = set()
        self._joints: dict[str, list[str]] = {}
        self._parts: dict[str, dict[str, list[str]]] = {}
        self._variants: dict[str, list[MeshVariant]] = {}
        self._init_qpos: dict[str, float] = {}
        self._damping: list[tuple[str, RigidObjectCfg]] = []
        self._acceleration_drives: list[str] = []
        self._ignored: list[str] = []
        self._add_surroundings()

    def add_rigid_object(self, cfg: RigidObjectCfg) -> None:
        """Add a rigid body.

        Raises:
            ConfigError: the uid is taken, the mesh is not there, or a plane is to move.
        """
        self._claim(cfg)
        if isinstance(cfg.shape, PlaneCfg):
            with placed(f"rigid object '{cfg.uid}': "):
                check_plane(cfg.body_type)
        body = self._add_body(cfg, mocap=cfg.body_type == "kinematic")
        if cfg.body_type == "dynamic":
            body.add_joint(name=cfg.uid, type=mujoco.mjtJoint.mjJNT_FREE)
            self._damping.append((cfg.uid, cfg))
        geom = self._add_shape(body, cfg.shape, f"rigid object '{cfg.uid}'")
        geom.name = cfg.uid
        _set_mass(geom, cfg)
        _finish_geom(geom, cfg)
        self._ignored += [f"{cfg.uid}.attrs.{name}" for name in _without_counterpart(cfg)]

    def vary_inertia(self, uid: str) -> None:
        """Keep a rigid body's centre of mass and principal axes open, so that they may differ between environments."""
        self._spec.body(uid).simple = 0

    def add_mesh_variants(self, cfg: RigidObjectCfg, paths: Sequence[Path]) -> None:
        """Give a rigid body further meshes, of which each environment may choose one instead of the configured one.

        Raises:
            ConfigError: a mesh cannot be read.
        """
        self.vary_inertia(cfg.uid)
        body = self._spec.body(cfg.uid)
        variants = [_measure_mesh(cfg, path) for path in [Path(cast(MeshCfg, cfg.shape).fpath), *paths]]
        for i, path in enumerate(paths, start=1):
            name = f"{cfg.uid}/variant{i}"
            self._spec.add_mesh(name=name, file=str(path))
            geom = body.add_geom(name=name, type=_GEOM.mjGEOM_MESH, meshname=name, mass=0.0)
            _finish_geom(geom, cfg)
        self._variants[cfg.uid] = variants

    def add_marker(self, cfg: MarkerCfg) -> None:
        """Add a thing that is only seen."""
        self._claim(cfg)
        geom = self._add_shape(self._add_body(cfg, mocap=True), cfg.shape, f"marker '{cfg.uid}'")
        geom.rgba = np.array(cfg.rgba)
        geom.mass = 0.0
        _set_bits(geom, _NO_BITS)

    def add_articulation(self, cfg: ArticulationCfg) -> None:
        """Add an articulation, or a robot, with a position drive on every joint.

        Raises:
            ConfigError: the uid is taken, no such asset, or a joint is named that is not there.
        """
        self._claim(cfg)
        place = f"robot '{cfg.uid}'" if isinstance(cfg, RobotCfg) else f"articulation '{cfg.uid}'"
        spec, parts = self._assemble(cfg, place)
        joints = [joint.name for joint in spec.joints if joint.type != mujoco.mjtJoint.mjJNT_FREE]
        names = [_short(name) for name in joints]
        for joint, name in zip(joints, names, strict=True):
            spec.joint(joint).name = name
        _set_drives(spec, names, cfg.drive_pros, place)
        for body in spec.bodies:
            for geom in body.geoms:
                if geom.contype or geom.conaffinity:
                    _set_bits(geom, _ROBOT_BITS)
        frame = self._spec.worldbody.add_frame(pos=cfg.init_pos, quat=_quat(cfg.init_rot))
        if not cfg.fix_base:
            spec.worldbody.first_body().add_freejoint()
        self._spec.attach(spec, prefix=f"{cfg.uid}/", frame=frame)
        self._joints[cfg.uid] = names
        if cfg.drive_pros.drive_type == "acceleration":
            self._acceleration_drives += [f"{cfg.uid}/{name}" for name in names]
        if isinstance(cfg, RobotCfg):
            if cfg.control_parts is not None:
                parts = {
                    part: match_names(patterns, names, f"{place}.control_parts.{part}")
                    for part, patterns in cfg.control_parts.items()
                }
            self._parts[cfg.uid] = parts
        if cfg.init_qpos is not None:
            if len(cfg.init_qpos) != len(names):
                raise ConfigError(
                    f"{place}: init_qpos has {len(cfg.init_qpos)} values for {len(names)} joints: {', '.join(names)}"
                )
            self._init_qpos |= {f"{cfg.uid}/{name}": q for name, q in zip(names, cfg.init_qpos, strict=True)}
        if cfg.drive_pros.max_velocity is not None:
            self._ignored.append(f"{cfg.uid}.drive_pros.max_velocity")

    def compile(self) -> CompiledScene:
        """Compile the model; what MuJoCo has no counterpart for is listed in one warning.

        Raises:
            ConfigError: MuJoCo refuses the scene.
        """
        self._spec.add_key(name="init")
        try:
            visual_model = self._spec.compile()
            # What is only seen costs the physics about a sixth of its speed.
            self._spec.compiler.discardvisual = True
            model = self._spec.compile()
        except ValueError as error:
            raise ConfigError(f"the scene cannot be compiled: {error}") from error
        for name, cfg in self._damping:
            _damp_free_body(model, name, cfg)
        for name in self._acceleration_drives:
            _scale_drive_by_inertia(model, name)
        _write_keyframe(model, self._init_qpos)
        softened = _soften_stiff_drives(model)
        if softened:
            logger.log_warning(f"drives too stiff for physics_dt {model.opt.timestep}, softened: {'; '.join(softened)}")
        if self._ignored:
            logger.log_warning(f"without counterpart in MuJoCo, not used: {', '.join(sorted(self._ignored))}")
        return CompiledScene(model, visual_model, self._joints, self._parts, self._variants)

    def _claim(self, cfg: ObjectBaseCfg) -> None:
        check_uid(cfg.uid, self._uids)
        self._uids.add(cfg.uid)

    def _add_body(self, cfg: ObjectBaseCfg, mocap: bool) -> mujoco.MjsBody:
        body = self._spec.worldbody.add_body(name=cfg.uid, pos=cfg.init_pos, quat=_quat(cfg.init_rot))
        body.mocap = mocap
        return body

    def _add_shape(self, body: mujoco.MjsBody, shape: ShapeCfg, place: str) -> mujoco.MjsGeom:
        match shape:
            case CubeCfg():
                return body.add_geom(type=_GEOM.mjGEOM_BOX, size=[edge / 2 for edge in shape.size])
            case SphereCfg():
                return body.add_geom(type=_GEOM.mjGEOM_SPHERE, size=[shape.radius, 0, 0])
            case CylinderCfg():
                return body.add_geom(type=_GEOM.mjGEOM_CYLINDER, size=[shape.radius, shape.height / 2, 0])
            case CapsuleCfg():
                return body.add_geom(type=_GEOM.mjGEOM_CAPSULE, size=[shape.radius, shape.height / 2, 0])
            case PlaneCfg():
                return body.add_geom(type=_GEOM.mjGEOM_PLANE, size=[0, 0, 1])
            case MeshCfg():
                with placed(f"{place}: shape.fpath: "):
                    path = mesh_path(shape.fpath)
                self._spec.add_mesh(name=body.name, file=str(path))
                return body.add_geom(type=_GEOM.mjGEOM_MESH, meshname=body.name)

    def _assemble(self, cfg: ArticulationCfg, place: str) -> tuple[mujoco.MjSpec, dict[str, list[str]]]:
        """Return the articulation's spec and the joint names of its components."""
        paths: dict[str, str] = {}
        if isinstance(cfg, RobotCfg):
            if cfg.robot_type is not None:
                with placed(f"{place}: "):
                    paths["arm"] = arm_of_robot_type(cfg.robot_type)
            if cfg.urdf_cfg is not None:
                paths |= {part.component_type: part.urdf_path for part in cfg.urdf_cfg.components}
        if cfg.fpath is not None:
            paths["arm"] = cfg.fpath
        if "arm" not in paths:
            raise ConfigError(f"{place}: needs an arm: fpath, robot_type, or an 'arm' in urdf_cfg.components")
        arm = _load(paths["arm"], place)
        parts = {"arm": [_short(joint.name) for joint in arm.joints]}
        if "hand" in paths:
            hand = _load(paths["hand"], place)
            parts["hand"] = [_short(joint.name) for joint in hand.joints]
            arm.attach(hand, prefix="hand/", site=_flange(arm, place))
        return arm, parts

    def _add_surroundings(self) -> None:
        spec = self._spec
        spec.visual.headlight.ambient = [0.35, 0.35, 0.35]
        spec.visual.headlight.diffuse = [0.35, 0.35, 0.35]
        spec.visual.headlight.specular = [0.1, 0.1, 0.1]
        # The largest picture that can be drawn off screen.
        spec.visual.global_.offwidth, spec.visual.global_.offheight = 1920, 1080
        # With these a picture takes 40 ms on a software renderer, with the engine's defaults 60 ms. The wide extent
        # keeps the edge of the shadow map out of sight.
        spec.visual.quality.shadowsize, spec.visual.quality.offsamples = 2048, 0
        spec.stat.extent, spec.stat.center = 6.0, [-0.3, 0.0, 0.3]
        builtin = mujoco.mjtBuiltin
        sky = spec.add_texture(name="sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX, width=256, height=1536)
        sky.builtin, sky.rgb1, sky.rgb2 = builtin.mjBUILTIN_GRADIENT, [0.86, 0.91, 0.96], [0.45, 0.55, 0.68]
        floor = spec.add_texture(name="ground", type=mujoco.mjtTexture.mjTEXTURE_2D, width=512, height=512)
        floor.builtin, floor.rgb1, floor.rgb2 = builtin.mjBUILTIN_CHECKER, [0.83, 0.84, 0.85], [0.76, 0.78, 0.80]
        material = spec.add_material(name="ground", texrepeat=[2, 2], texuniform=True, specular=0.1, shininess=0.1)
        textures = list(material.textures)
        textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "ground"
        material.textures = textures
        light = spec.worldbody.add_light(name="sun", pos=[-0.5, 0.5, 3.0], dir=[-0.1, -0.2, -1.0])
        light.type = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
        light.diffuse = [0.5, 0.5, 0.47]
        light.castshadow = True
        # Of two touching geoms the larger friction counts: the ground leaves it to the object.
        ground = spec.worldbody.add_geom(name="ground", type=_GEOM.mjGEOM_PLANE, size=[0, 0, 1], material="ground")
        ground.friction = [0.0, 0.005, 0.0001]
        _set_bits(ground, _OBJECT_BITS)


def _set_mass(geom: mujoco.MjsGeom, cfg: RigidObjectCfg) -> None:
    if cfg.attrs.mass > 0:
        geom.mass = cfg.attrs.mass
    else:
        geom.density = cfg.attrs.density


def _finish_geom(geom: mujoco.MjsGeom, cfg: RigidObjectCfg) -> None:
    geom.rgba = np.array(cfg.rgba)
    geom.friction = np.array([cfg.attrs.dynamic_friction, 0.005, 0.0001])
    geom.margin = cfg.attrs.rest_offset
    _set_bits(geom, _OBJECT_BITS if cfg.attrs.enable_collision else _NO_BITS)


def _measure_mesh(cfg: RigidObjectCfg, path: Path) -> MeshVariant:
    """Compile a mesh alone, for its mass properties."""
    spec = mujoco.MjSpec()
    spec.add_mesh(name="mesh", file=str(path.expanduser().resolve()))
    body = spec.worldbody.add_body()
    _set_mass(body.add_geom(type=_GEOM.mjGEOM_MESH, meshname="mesh"), cfg)
    try:
        model = spec.compile()
    except ValueError as error:
        raise ConfigError(f"rigid object '{cfg.uid}': cannot use the mesh '{path}': {error}") from error
    return MeshVariant(float(model.body_mass[1]), model.body_inertia[1], model.body_ipos[1], model.body_iquat[1])


def _load(name: str, place: str) -> mujoco.MjSpec:
    try:
        return mujoco.MjSpec.from_file(str(asset_path(name)))
    except FileNotFoundError as error:
        raise ConfigError(f"{place}: {error}") from error
    except ValueError as error:
        raise ConfigError(f"{place}: cannot read '{name}': {error}") from error


def _flange(arm: mujoco.MjSpec, place: str) -> mujoco.MjsSite:
    site = arm.site("tool0")
    if site is None:
        raise ConfigError(f"{place}: the arm has no site 'tool0' to put the hand on")
    return site


def _short(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _quat(euler_degrees: Sequence[float]) -> np.ndarray:
    radians = torch.tensor([math.radians(angle) for angle in euler_degrees], dtype=torch.float64)
    return quat_from_euler(radians).numpy()


def _set_bits(geom: mujoco.MjsGeom, bits: Mapping[str, int]) -> None:
    geom.contype, geom.conaffinity = bits["contype"], bits["conaffinity"]


def _set_drives(spec: mujoco.MjSpec, names: list[str], drive: JointDrivePropertiesCfg, place: str) -> None:
    """Add a position actuator to every joint: force = kp (target - q) - kd qd, within the effort limit."""
    default = JointDrivePropertiesCfg()
    stiffness = _per_joint(drive.stiffness, default.stiffness, names, f"{place}.drive_pros.stiffness")
    damping = _per_joint(drive.damping, default.damping, names, f"{place}.drive_pros.damping")
    effort = _per_joint(drive.max_effort, None, names, f"{place}.drive_pros.max_effort")
    friction = _per_joint(drive.friction, default.friction, names, f"{place}.drive_pros.friction")
    for name in names:
        joint = spec.joint(name)
        kp, kd, limit = cast(float, stiffness[name]), cast(float, damping[name]), effort[name]
        actuator = spec.add_actuator(name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        actuator.gaintype, actuator.biastype = mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtBias.mjBIAS_AFFINE
        actuator.gainprm[0] = kp
        actuator.biasprm[:3] = [0.0, -kp, -kd]
        if limit is not None:
            # The maker's own limit of the joint (actfrcrange) holds beside it.
            actuator.forcerange = [-limit, limit]
        if friction[name]:
            joint.frictionloss = friction[name]


def _per_joint(value: Any, default: Any, names: list[str], place: str) -> dict[str, float | None]:
    if not isinstance(value, dict):
        return dict.fromkeys(names, value)
    result: dict[str, float | None] = dict.fromkeys(names, default)
    for pattern, number in value.items():
        result |= dict.fromkeys(match_names([pattern], names, place), number)
    return result


def _without_counterpart(cfg: RigidObjectCfg) -> list[str]:
    attrs = cfg.attrs
    optional = (
        "max_linear_velocity",
        "max_angular_velocity",
        "max_depenetration_velocity",
        "sleep_threshold",
        "min_position_iters",
        "min_velocity_iters",
        "enable_ccd",
    )
    names = [name for name in optional if getattr(attrs, name) is not None]
    if attrs.static_friction != attrs.dynamic_friction:
        names.append("static_friction")
    if attrs.restitution:
        names.append("restitution")
    return names


def _damp_free_body(model: mujoco.MjModel, name: str, cfg: RigidObjectCfg) -> None:
    """Damp a free body's velocity at the configured rates: force = rate * mass * velocity, likewise for the torque."""
    joint = model.joint(name)
    body = int(joint.bodyid[0])
    dof = int(joint.dofadr[0])
    model.dof_damping[dof : dof + 3] = cfg.attrs.linear_damping * model.body_mass[body]
    model.dof_damping[dof + 3 : dof + 6] = cfg.attrs.angular_damping * model.body_inertia[body]


def _scale_drive_by_inertia(model: mujoco.MjModel, name: str) -> None:
    inertia = model.dof_M0[model.jnt_dofadr[model.joint(name).id]]
    actuator = model.actuator(name).id
    model.actuator_gainprm[actuator] *= inertia
    model.actuator_biasprm[actuator] *= inertia


def _soften_stiff_drives(model: mujoco.MjModel) -> list[str]:
    """Scale down drives whose damping a substep cannot integrate, keeping the ratio of stiffness to damping.

    MuJoCo treats a drive's damping implicitly only while its force is below the limit. At the limit, a damping d on
    a joint of effective inertia m is stable for d < 2 m / dt; twice that margin is kept. m is the smallest of
    1 / (M^-1)_jj over sampled poses.

    Returns:
        One text for each drive that was changed.
    """
    inertia = _smallest_inertia(model)
    softened = []
    for actuator in range(model.nu):
        joint = model.actuator_trnid[actuator, 0]
        damping = -model.actuator_biasprm[actuator, 2]
        largest = inertia[model.jnt_dofadr[joint]] / model.opt.timestep
        if damping > largest:
            model.actuator_gainprm[actuator] *= largest / damping
            model.actuator_biasprm[actuator] *= largest / damping
            name = model.actuator(actuator).name
            softened.append(f"{name} stiffness {model.actuator_gainprm[actuator, 0]:.4g} damping {largest:.4g}")
    return softened


def _smallest_inertia(model: mujoco.MjModel, samples: int = 64) -> np.ndarray:
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    low = np.where(model.jnt_limited, model.jnt_range[:, 0], -np.pi)
    high = np.where(model.jnt_limited, model.jnt_range[:, 1], np.pi)
    scalar = model.jnt_type >= int(mujoco.mjtJoint.mjJNT_SLIDE)
    smallest = np.full(model.nv, np.inf)
    inverse = np.zeros((model.nv, model.nv))
    for _ in range(samples):
        data.qpos[model.jnt_qposadr[scalar]] = rng.uniform(low[scalar], high[scalar])
        mujoco.mj_fwdPosition(model, data)
        mujoco.mj_solveM(model, data, inverse, np.eye(model.nv))
        smallest = np.minimum(smallest, 1.0 / np.diag(inverse))
    return smallest


def _write_keyframe(model: mujoco.MjModel, init_qpos: Mapping[str, float]) -> None:
    """Make keyframe 0 the initial state, with every drive's target at its joint's position."""
    model.key_qpos[0] = model.qpos0
    for name, q in init_qpos.items():
        model.key_qpos[0][model.jnt_qposadr[model.joint(name).id]] = q
    for actuator in range(model.nu):
        joint = model.actuator_trnid[actuator, 0]
        model.key_ctrl[0][actuator] = model.key_qpos[0][model.jnt_qposadr[joint]]
    for body in range(model.nbody):
        if (mocap := model.body_mocapid[body]) >= 0:
            model.key_mpos[0][3 * mocap : 3 * mocap + 3] = model.body_pos[body]
            model.key_mquat[0][4 * mocap : 4 * mocap + 4] = model.body_quat[body]
