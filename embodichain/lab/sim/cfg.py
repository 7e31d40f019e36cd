"""Typed configuration of a scene's entities and sensors.

Units: metres, kilograms, seconds, newtons (or newton metres), radians, except ``init_rot``, which is in degrees;
images are described in pixels, as OpenCV does. Where MuJoCo has no counterpart for a key of the original's physics
engine, the key is accepted, and the scene lists it in one warning when it is set (see ``scene.py``).
"""

from dataclasses import field
from typing import Annotated, Any, Literal, Self, get_args

import numpy as np
import torch
from pydantic import BeforeValidator, Discriminator, Field, PositiveInt, Tag, WithJsonSchema, model_validator

from embodichain.lab.sim.shapes import Positive, ShapeCfg
from embodichain.utils import MayChange, RayTracing, configclass

Vec3 = tuple[float, float, float]
Intrinsics = tuple[Positive, Positive, float, float]
NonNegative = Annotated[float, Field(ge=0)]
PerJoint = NonNegative | dict[str, NonNegative]
Part = Annotated[float, Field(ge=0, le=1)]
Rgb = tuple[Part, Part, Part]
Color = Rgb | tuple[Part, Part, Part, Part]
Row4 = tuple[float, float, float, float]
Matrix4 = tuple[Row4, Row4, Row4, Row4]
ComponentType = Literal["chassis", "torso", "head", "arm", "left_arm", "right_arm", "hand", "left_hand", "right_hand"]
COMPONENT_TYPES: tuple[str, ...] = get_args(ComponentType)
"""The parts of an assembled robot, in the order of their joints."""


def _device_name(value: Any) -> Any:
    if isinstance(value, str | torch.device):
        return str(value)
    raise ValueError("must be the name of a device, such as 'cpu', or a torch.device")


Device = Annotated[str | torch.device, BeforeValidator(_device_name), WithJsonSchema({"type": "string"})]
"""A device's name; a ``torch.device`` is converted to one."""
_IDENTITY: Matrix4 = ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0))


@configclass
class ConstraintSolverCfg:
    """The solver of contact, joint limit and dry friction forces (MuJoCo's Newton solver)."""

    cone: Literal["pyramidal", "elliptic"] = "pyramidal"
    """Friction cone. The pyramid is an approximation; with the elliptic one, Go2 is simulated at 0.7 of the speed."""
    iterations: Annotated[int, Field(ge=1)] = 100
    """Newton steps at most; it takes a few."""
    ls_iterations: Annotated[int, Field(ge=1)] = 50
    """Line search steps at most in each Newton step."""
    tolerance: Annotated[float, Field(ge=0)] = 1e-8
    """Scaled improvement below which the solver stops."""
    warm_start: bool = True
    """Begin at the last substep's accelerations where they are the better guess. The result is the same within
    ``tolerance``. Without it a robot on its feet is simulated 4 to 14 % faster; many contacts may need it."""
    islands: bool = True
    """Solve for groups of bodies that do not touch each other one by one. The result is the same within ``tolerance``.
    Without it a scene of one robot is simulated 2 to 7 % faster."""


@configclass
class SimulationManagerCfg:
    """The settings of a simulation."""

    num_envs: Annotated[int, Field(ge=1)] = 1
    """Scenes simulated side by side."""
    sim_device: MayChange[Device] = "auto"
    """Device of the physics: ``"cpu"`` is MuJoCo's batch on threads; ``"cuda:<number>"`` MuJoCo Warp on a GPU (the
    extra ``gpu``), ``"warp:cpu"`` the same engine on the processor; ``"auto"`` a training's device, else the cpu."""
    physics_dt: Annotated[float, Field(gt=0)] = 0.01
    """Length of one physics substep, s."""
    gravity: Vec3 = (0.0, 0.0, -9.81)
    """m/s^2, world frame."""
    solver: ConstraintSolverCfg = field(default_factory=ConstraintSolverCfg)
    """Solver of contact forces."""
    num_threads: MayChange[Annotated[int, Field(ge=0)]] = 0
    """Physics threads; 0: one for each CPU that this process may use."""
    headless: bool = True
    """No window."""
    enable_rt: RayTracing = False
    """Ray-traced images, with shadows; needs the extra ``raytrace``. Without it OpenGL renders, if installed."""
    render_device: str = "cpu"
    """Device of the ray tracer: ``"cpu"`` or ``"cuda:<number>"``; a training sets its own device."""
    gpu_id: int = 0
    """Kept for compatibility; the device decides."""


@configclass
class RigidBodyAttributesCfg:
    """Physical attributes of a rigid body, with the original's names."""

    mass: Annotated[float, Field(ge=0)] = 1.0
    """kg; 0: from ``density``."""
    density: Annotated[float, Field(gt=0)] = 1000.0
    """kg/m^3, used when ``mass`` is 0."""
    static_friction: Annotated[float, Field(ge=0)] = 0.5
    """Accepted: MuJoCo has one sliding coefficient, ``dynamic_friction``."""
    dynamic_friction: Annotated[float, Field(ge=0)] = 0.5
    """Sliding friction coefficient; of two touching bodies the larger counts."""
    restitution: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Accepted: MuJoCo's contacts are soft and have no restitution coefficient."""
    linear_damping: Annotated[float, Field(ge=0)] = 0.7
    """Rate at which linear velocity decays, 1/s; 0 where the centre of mass is not the body's origin."""
    angular_damping: Annotated[float, Field(ge=0)] = 0.7
    """Rate at which angular velocity decays, 1/s."""
    contact_offset: Annotated[float, Field(ge=0)] = 0.002
    """Accepted: MuJoCo finds all contacts of bodies that touch."""
    rest_offset: float = 0.0
    """Distance at which bodies rest, m (MuJoCo's ``margin``)."""
    max_linear_velocity: float | None = None
    """Accepted; MuJoCo has no velocity limit."""
    max_angular_velocity: float | None = None
    """Accepted; MuJoCo has no velocity limit."""
    max_depenetration_velocity: float | None = None
    """Accepted; MuJoCo's contact model has no such limit."""
    sleep_threshold: float | None = None
    """Accepted; bodies do not sleep."""
    min_position_iters: int | None = None
    """Accepted; MuJoCo's solver has one iteration count for the scene."""
    min_velocity_iters: int | None = None
    """Accepted; MuJoCo's solver has one iteration count for the scene."""
    enable_ccd: bool | None = None
    """Accepted; contacts are found at the substeps."""
    enable_collision: bool = True
    """Whether the body touches anything."""


@configclass
class ObjectBaseCfg:
    """The fields of every entity."""

    uid: str
    """Name, unique in the scene."""
    init_pos: Vec3 = (0.0, 0.0, 0.0)
    """World position, m."""
    init_rot: Vec3 = (0.0, 0.0, 0.0)
    """Rotation about the fixed x, then y, then z axis, degrees."""


@configclass
class RigidObjectCfg(ObjectBaseCfg):
    """One rigid body."""

    shape: ShapeCfg = field(kw_only=True)
    """Visible and collision shape."""
    attrs: RigidBodyAttributesCfg = field(default_factory=RigidBodyAttributesCfg)
    """Mass, friction and other physical attributes."""
    body_type: Literal["dynamic", "kinematic", "static"] = "dynamic"
    """Moved by physics, only by calls, or never."""
    rgba: tuple[float, float, float, float] = (0.85, 0.33, 0.2, 1.0)
    """Colour, 0 to 1."""
    sense_contacts: bool = False
    """Whether ``sim.get_contact_force(uid)`` can be asked; a sensor costs a little in every substep."""


@configclass
class MarkerCfg(ObjectBaseCfg):
    """A visible body without mass and collisions, such as a goal."""

    shape: ShapeCfg = field(kw_only=True)
    """Visible shape."""
    rgba: tuple[float, float, float, float] = (0.1, 0.75, 0.3, 0.6)
    """Colour, 0 to 1."""


@configclass
class JointDrivePropertiesCfg:
    """Position drives of joints: force = stiffness (target - q) - damping qd, within ``max_effort``.

    Each number is for all joints, or a mapping from joint names or regular expressions to numbers.
    """

    drive_type: Literal["force", "acceleration"] = "force"
    """``"force"``: as the formula. ``"acceleration"`` scales it by the joint's inertia in the reference pose."""
    stiffness: PerJoint = 1e4
    """N/m or Nm/rad."""
    damping: PerJoint = 1e3
    """N s/m or Nm s/rad."""
    max_effort: PerJoint | None = None
    """N or Nm, at most the limit of the joint in the file; None: that limit."""
    max_velocity: PerJoint | None = None
    """Limit of velocity actions and normalised velocities, rad/s or m/s; MuJoCo does not hold a joint to it."""
    friction: PerJoint | None = None
    """Dry friction, N or Nm; None: the file's."""
    armature: PerJoint | None = None
    """Inertia of the rotor, seen at the joint (rotor's inertia times the gear ratio squared), kg or kg m^2; None: the
    file's, which in a URDF is 0."""
    servo: Literal["xl330", "sts3215"] | None = None
    """Servo of all drives, by BAM's model M6 (voltage, back-EMF, friction by speed and load): it sets the numbers above
    but ``max_velocity``. ``sim_device`` must be the CPU."""
    servo_gain: Positive | None = None
    """Position gain of the servo's controller, in its register's unit; None: the servo's own."""
    backlash: PerJoint = 0.0
    """Play of the gears to each side, rad or m: the drive moves a motor, which moves the joint. Joint positions, and
    the drive's own encoder, are behind it. ``sim_device`` must be the CPU."""

    @model_validator(mode="after")
    def _is_servo_or_numbers(self) -> Self:
        numbers = ("drive_type", "stiffness", "damping", "max_effort", "friction", "armature")
        if self.servo and (given := [name for name in numbers if getattr(self, name) != getattr(type(self), name)]):
            raise ValueError(f"servo '{self.servo}' sets {', '.join(given)}: give either")
        if self.servo_gain is not None and self.servo is None:
            raise ValueError("servo_gain needs a servo")
        return self


@configclass
class URDFComponentCfg:
    """One part of an assembled robot."""

    component_type: ComponentType
    """Place of the part: arms and a head on the torso or chassis if there is one, else on the base; a hand on its arm's
    flange, which is a site or link ``tool0``, ``attachment_site`` or ``flange``, else on the arm's last link. The names
    of a side's joints and links begin with ``left_`` or ``right_``."""
    urdf_path: str
    """A file (URDF or MJCF), the name of a bundled asset, or ``menagerie/<model>``."""
    transform: Matrix4 = _IDENTITY
    """Pose of the part in the frame of its place, 4x4, m."""


@configclass
class URDFCfg:
    """A robot assembled from parts."""

    components: list[URDFComponentCfg] = []
    """The parts."""


@configclass
class SolverCfg:
    """Kinematics of one control part."""

    tcp: Matrix4 = _IDENTITY
    """Pose of the tool centre point in the frame of the part's end, 4x4, m."""
    root_link_name: str | None = None
    """Link where the chain begins; None: the link that carries the part's first joint."""
    end_link_name: str | None = None
    """Link or site where the chain ends; None: the flange on the part's last link (a site, or a link fixed to it, named
    ``tool0``, ``attachment_site`` or ``flange``), else that link."""
    class_type: str | None = None
    """Accepted; there is one solver, damped least squares."""
    ur_type: str | None = None
    """Accepted; the kinematics follow the robot's model."""
    urdf_path: str | None = None
    """Accepted; the kinematics follow the robot's model."""
    joint_names: list[str] | None = None
    """Accepted; the joints are the control part's."""


@configclass
class ArticulationCfg(ObjectBaseCfg):
    """Bodies connected by joints."""

    fpath: str | None = None
    """A file (URDF or MJCF), the name of a bundled asset, or ``menagerie/<model>`` (extra ``menagerie``)."""
    drive_pros: JointDrivePropertiesCfg = field(default_factory=JointDrivePropertiesCfg)
    """Gains and limits of the joints' drives."""
    init_qpos: list[float] | None = None
    """Initial joint positions in joint order, m or rad; None: the file's first keyframe, else zero or the limit
    next to it. Joints that mimic others follow from these."""
    fix_base: bool = True
    """Whether the root is fixed to the world. A free root starts at ``init_pos``; with ``init_pos`` at the origin,
    which is in the ground, at the file's place: its first keyframe's, else its root body's."""
    collision_links: list[str] | None = None
    """Parts that touch anything: links, or single collision shapes (many files have feet that are no links), by names
    or regular expressions; None: all of the file's. Feet alone are faster than all."""
    sense_contacts: list[str] = []
    """Links, by names or regular expressions, for which ``sim.get_contact_force(uid, link)`` can be asked; each sensor
    costs a little in every substep."""


@configclass
class RobotCfg(ArticulationCfg):
    """An articulation that acts."""

    robot_type: str | None = None
    """A bundled robot: ``"URRobot"`` (which one: ``ur_type``), ``"FrankaPanda"``, ``"CartPole"``, or an asset's
    name."""
    ur_type: str = "ur10"
    """Model of a ``"URRobot"``: ``ur3``, ``ur5``, ``ur10``, ``ur3e``, ``ur5e`` or ``ur10e``."""
    urdf_cfg: URDFCfg | None = None
    """Parts to assemble."""
    control_parts: dict[str, list[str]] | None = None
    """Named groups of joints, by names or regular expressions; None: one for each component. Joints that mimic others
    cannot be driven and belong to no part."""
    solver_cfg: dict[str, SolverCfg] = {}
    """Solvers by control part."""


@configclass
class VisualMaterialCfg:
    """Appearance of a surface."""

    uid: str = "default_mat"
    """Accepted; materials have no names here."""
    base_color: Color = (0.5, 0.5, 0.5, 1.0)
    """Red, green, blue, and opacity where it is given, 0 to 1."""
    metallic: Part = 0.0
    """Accepted; the renderer has no metallic surfaces."""
    roughness: Part = 0.7
    """Accepted; all highlights are alike."""


@configclass
class LightCfg(ObjectBaseCfg):
    """A light. Where a config has any, they replace the default light.

    A light of ``intensity`` 100 shines with its full ``color`` on a surface that faces it.
    """

    light_type: Literal["point", "sun", "direction", "spot"] = "point"
    """Light from ``init_pos`` to all sides; along ``direction`` (two names); from ``init_pos`` in a cone."""
    color: Rgb = (1.0, 1.0, 1.0)
    """0 to 1."""
    intensity: Annotated[float, Field(ge=0)] = 50.0
    """Per cent of full brightness."""
    enable_shadow: bool = True
    """Cast shadows in videos; cameras that are sensors render none."""
    radius: Annotated[float, Field(gt=0)] = 10.0
    """Accepted; light does not fade with distance."""
    direction: Vec3 = (0.0, 0.0, -1.0)
    """Direction of the light; not for a point light."""
    spot_angle_inner: float = 30.0
    """Accepted; a cone's light fades towards its edge."""
    spot_angle_outer: Annotated[float, Field(gt=0, le=90)] = 45.0
    """Angle from the cone's axis to its edge, degrees."""


@configclass
class EmissionLightCfg:
    """Ambient light."""

    color: Rgb = (1.0, 1.0, 1.0)
    """0 to 1."""
    intensity: Annotated[float, Field(ge=0)] = 100.0
    """Per cent of the default brightness."""


@configclass
class IndirectLightCfg:
    """Light without a place."""

    emission_light: EmissionLightCfg = field(default_factory=EmissionLightCfg)
    """Ambient light."""


@configclass
class LightsCfg:
    """The ``light`` block."""

    direct: list[LightCfg] = []
    """Point, directional and spot lights."""
    indirect: IndirectLightCfg | None = None
    """Ambient light; None: the default."""


@configclass
class GroupMemberCfg(RigidObjectCfg):
    """One rigid body of a group."""

    uid: str = ""
    """Accepted; its key in the group is its name."""


@configclass
class RigidObjectGroupCfg:
    """Rigid bodies handled as one; each is in the scene as ``<uid>_<member>``, too."""

    uid: str
    """Name, unique in the scene."""
    rigid_objects: Annotated[dict[str, GroupMemberCfg], Field(min_length=1)]
    """The members by name; with ``folder_path`` one, the template of all members but for the mesh."""
    body_type: Literal["dynamic", "kinematic"] = "dynamic"
    """Body type of all members."""
    folder_path: str | None = None
    """A folder of mesh files, one for each member, in alphabetical order."""
    max_num: Annotated[int, Field(ge=1)] = 1
    """Members at most, with ``folder_path``."""
    ext: str = ".obj"
    """Extension of the mesh files."""


@configclass
class ExtrinsicsCfg:
    """A camera's pose: by ``eye`` and ``target``, else by ``pos`` and ``quat``; in its parent's frame or the world's.

    A camera looks along its own -z axis, and +y is upwards in its image (OpenGL's and MuJoCo's convention).
    """

    parent: str | None = None
    """A link or site that carries the camera: its name, or ``<uid>/<name>`` where several things have one of that name.
    None: the world."""
    pos: Vec3 = (0.0, 0.0, 0.0)
    """m."""
    quat: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    """Unit quaternion (w, x, y, z)."""
    eye: Vec3 | None = None
    """Position, m."""
    target: Vec3 | None = None
    """The point in the middle of the view, m."""
    up: Vec3 = (0.0, 0.0, 1.0)
    """Direction that is upwards in the image."""

    @model_validator(mode="after")
    def _is_a_view(self) -> Self:
        if (self.eye is None) != (self.target is None):
            raise ValueError("eye and target belong together")
        if self.eye and self.target and not np.cross(np.subtract(self.target, self.eye), self.up).any():
            raise ValueError("the view from eye to target must not be zero or along up")
        if not np.linalg.norm(self.quat) > 0.0:
            raise ValueError("quat must not be zero")
        return self


_FOCAL = 1.25  # of a camera without intrinsics, in heights of its image


@configclass
class CameraCfg:
    """A pinhole camera, in every environment."""

    uid: str
    """Name, unique in the scene; its images are ``sensor/<uid>/...`` in the observation."""
    sensor_type: Literal["Camera"] = "Camera"
    """Kind of sensor."""
    width: Annotated[PositiveInt, Field(le=4096)] = 640
    """Pixels."""
    height: Annotated[PositiveInt, Field(le=4096)] = 480
    """Pixels."""
    intrinsics: Intrinsics | None = None
    """fx, fy, cx, cy, pixels; None: 43.6 degrees of height, centred."""
    extrinsics: ExtrinsicsCfg = field(default_factory=ExtrinsicsCfg)
    """Camera's pose."""
    near: Positive = 0.005
    """Nothing nearer is seen, m."""
    far: Positive = 100.0
    """Nothing further away is seen, m; also the depth of the sky."""
    enable_color: bool = True
    """Give ``color``."""
    enable_depth: bool = False
    """Give ``depth``."""
    enable_mask: bool = False
    """Give ``mask``."""
    enable_normal: Literal[False] = False
    """Accepted as false; normals are not rendered."""
    enable_position: Literal[False] = False
    """Accepted as false; positions follow from depth and intrinsics."""

    @property
    def lens(self) -> Intrinsics:
        """``intrinsics``, or the default ones where they are left out."""
        return self.intrinsics or (_FOCAL * self.height, _FOCAL * self.height, self.width / 2, self.height / 2)

    @property
    def kinds(self) -> list[str]:
        """The enabled images."""
        return [kind for kind in ("color", "depth", "mask") if getattr(self, f"enable_{kind}")]

    @model_validator(mode="after")
    def _can_see(self) -> Self:
        if self.near >= self.far:
            raise ValueError("near must be less than far")
        for name in ("intrinsics", "intrinsics_right"):
            lens = getattr(self, name, None)
            if lens and not (0 <= lens[2] <= self.width and 0 <= lens[3] <= self.height):
                raise ValueError(f"{name}: cx, cy must be inside {self.width} x {self.height} pixels, got {lens[2:]}")
        return self


@configclass
class StereoCameraCfg(CameraCfg):
    """Two cameras side by side; the fields of :class:`CameraCfg` describe the left one."""

    sensor_type: Literal["StereoCamera"] = "StereoCamera"  # type: ignore[assignment]
    """Kind of sensor."""
    intrinsics_right: Intrinsics | None = None
    """Intrinsics of the right camera; None: as the left one's."""
    left_to_right_pos: Vec3 = (0.05, 0.0, 0.0)
    """Position of the right camera in the left one's frame, m."""
    left_to_right_rot: Vec3 = (0.0, 0.0, 0.0)
    """Rotation of the right camera there about the fixed x, then y, then z axis, degrees."""
    enable_disparity: bool = False
    """Give ``disparity``; needs ``enable_depth``."""

    @model_validator(mode="after")
    def _can_have_disparity(self) -> Self:
        if self.enable_disparity and not self.enable_depth:
            raise ValueError("enable_disparity needs enable_depth")
        return self


@configclass
class ContactSensorCfg:
    """Contacts of a robot's or an articulation's links, in every environment; rewards and terminations read it."""

    uid: str
    """Name, unique in the scene."""
    sensor_type: Literal["Contact"] = "Contact"
    """Kind of sensor."""
    entity: str | None = None
    """The robot or articulation; None: the robot."""
    link_names: Annotated[list[str], Field(min_length=1)] = field(kw_only=True)
    """Links, by names or regular expressions; where the file has no link of a name, its named collision shapes. The
    sensor has them in the robot's order, whatever this one."""
    force_threshold: Positive = 1.0
    """A link is in contact where the force on it exceeds this, N."""


def sensor_type(value: object) -> object:
    """Return the ``sensor_type`` of a sensor's data, by default a camera."""
    return value.get("sensor_type", "Camera") if isinstance(value, dict) else getattr(value, "sensor_type", None)


SensorCfg = Annotated[
    Annotated[CameraCfg, Tag("Camera")]
    | Annotated[StereoCameraCfg, Tag("StereoCamera")]
    | Annotated[ContactSensorCfg, Tag("Contact")],
    Discriminator(sensor_type),
]
"""Any sensor, by its ``sensor_type``."""
