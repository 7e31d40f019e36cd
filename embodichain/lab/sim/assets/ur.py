"""The arms of Universal Robots, from their published Denavit-Hartenberg parameters, in primitive shapes.

Every body frame sits on its joint: z is the joint's axis, and the child's pose is (a, 0, d) then Rx(alpha) with
alpha = pi/2 0 0 pi/2 -pi/2 0. The root frame is the DH base: at q = 0 the arm stretches along -x. Site ``tool0`` is DH
frame 6: on the flange, z out of it.

Masses, centres of mass and effort limits as published; inertias are those of cylinders of about the same size. Armature
is an estimate: the inertia of rotor and strain-wave generator by joint size, times the gear ratio squared, 101^2. The
controller compensates gravity. Visuals: group 2, no contacts, no mass. Collisions: group 3, one capsule or cylinder a
link, inside its visuals. Actuators are added by the scene.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["LINK_ALIASES", "UR_TYPES", "joint_aliases", "ur_xml"]

LINK_ALIASES = {"ee_link": "tool0"}
"""What other makers' files call the flange, and what ours do."""

Vec3 = tuple[float, float, float]

# By joint size: radius of the housing (m), armature (kg m^2).
_RADII = {0: 0.032, 1: 0.038, 2: 0.049, 3: 0.064, 4: 0.078}
_ARMATURES = {0: 0.05, 1: 0.1, 2: 0.25, 3: 1.0, 4: 2.0}


@dataclass(frozen=True)
class _Arm:
    """One model. Lengths in m.

    Attributes:
        d1, a2, a3, d4, d5, d6: Denavit-Hartenberg parameters, a2 and a3 without their minus.
        upper_z, fore_z: how far the tubes of upper arm and forearm lie beside the plane of the base's axis.
        sizes: of the shoulder's, elbow's and wrist's joints.
        efforts: limits of shoulder, elbow and wrist, Nm.
        masses: of the six moving links, kg.
        centres: their centres of mass in the DH frame at their end.
    """

    d1: float
    a2: float
    a3: float
    d4: float
    d5: float
    d6: float
    upper_z: float
    fore_z: float
    sizes: tuple[int, int, int]
    efforts: tuple[float, float, float]
    masses: tuple[float, float, float, float, float, float]
    centres: tuple[Vec3, Vec3, Vec3, Vec3, Vec3, Vec3]


_CENTRES_3 = ((0, -0.02, 0), (0.13, 0, 0.1157), (0.05, 0, 0.0238), (0, 0, 0.01), (0, 0, 0.01), (0, 0, -0.02))
_CENTRES_5 = (
    (0, -0.02561, 0.00193),
    (0.2125, 0, 0.11336),
    (0.15, 0, 0.0265),
    (0, -0.0018, 0.01634),
    (0, 0.0018, 0.01634),
    (0, 0, -0.001159),
)
_CENTRES_10 = (
    (0.021, 0, 0.027),
    (0.38, 0, 0.158),
    (0.24, 0, 0.068),
    (0, 0.007, 0.018),
    (0, 0.007, 0.018),
    (0, 0, -0.026),
)
_LIMITS_3, _LIMITS_5, _LIMITS_10 = (56.0, 28.0, 12.0), (150.0, 150.0, 28.0), (330.0, 150.0, 56.0)

# fmt: off
_ARMS = {
    "ur3": _Arm(0.1519, 0.24365, 0.21325, 0.11235, 0.08535, 0.0819, 0.120, 0.027, (2, 1, 0), _LIMITS_3,
                (2.0, 3.42, 1.26, 0.8, 0.8, 0.35), _CENTRES_3),
    "ur5": _Arm(0.089159, 0.425, 0.39225, 0.10915, 0.09465, 0.0823, 0.136, 0.016, (3, 3, 1), _LIMITS_5,
                (3.7, 8.393, 2.33, 1.219, 1.219, 0.1879), _CENTRES_5),
    "ur10": _Arm(0.1273, 0.612, 0.5723, 0.163941, 0.1157, 0.0922, 0.175, 0.049, (4, 3, 2), _LIMITS_10,
                 (7.778, 12.93, 3.87, 1.96, 1.96, 0.202), _CENTRES_10),
    "ur3e": _Arm(0.15185, 0.24355, 0.2132, 0.13105, 0.08535, 0.0921, 0.120, 0.027, (2, 1, 0), _LIMITS_3,
                 (1.98, 3.4445, 1.437, 0.871, 0.805, 0.261), _CENTRES_3),
    "ur5e": _Arm(0.1625, 0.425, 0.3922, 0.1333, 0.0997, 0.0996, 0.138, 0.007, (3, 3, 1), _LIMITS_5,
                 (3.761, 8.058, 2.846, 1.37, 1.3, 0.365), _CENTRES_5),
    "ur10e": _Arm(0.1807, 0.6127, 0.57155, 0.17415, 0.11985, 0.11655, 0.176, 0.039, (4, 3, 2), _LIMITS_10,
                  (7.369, 13.051, 3.989, 2.1, 1.98, 0.615), _CENTRES_10),
}
# fmt: on
UR_TYPES = tuple(_ARMS)
"""The models there are."""

_JOINTS = (
    "shoulder_pan_joint",
    "shoulder_lift_joint",
    "elbow_joint",
    "wrist_1_joint",
    "wrist_2_joint",
    "wrist_3_joint",
)

_HALF_TURN = "0.7071067811865476 0.7071067811865476 0 0"  # Rx(pi/2)
_HALF_TURN_BACK = "0.7071067811865476 -0.7071067811865476 0 0"


def joint_aliases(names: Sequence[str]) -> dict[str, str]:
    """Return what the joints of UR arms answer to beside their names: ``JOINT1`` to ``JOINT6``, from the base on.

    Args:
        names: of an articulation's joints; those of an arm on a side have the side before both names.
    """
    aliases: dict[str, str] = {}
    for prefix in [name.removesuffix(_JOINTS[0]) for name in names if name.endswith(_JOINTS[0])]:
        arm = [prefix + joint for joint in _JOINTS]
        if set(arm) <= set(names):
            aliases |= {joint: f"{prefix}JOINT{number}" for number, joint in enumerate(arm, start=1)}
    return aliases


def ur_xml(name: str) -> str:
    """Return the MJCF of an arm, one of :data:`UR_TYPES`."""
    arm = _ARMS[name]
    d1, a2, a3, d4, d5, d6, up, fo = arm.d1, arm.a2, arm.a3, arm.d4, arm.d5, arm.d6, arm.upper_z, arm.fore_z
    rs, re, rw = (_RADII[size] for size in arm.sizes)
    ks, ke, kw = rs / _RADII[4], re / _RADII[3], rw / _RADII[2]  # everything that is not a DH length scales with these
    ru, rf = 0.060 * ks, 0.047 * ke  # the tubes
    gap = 0.004 * ks  # half a ring between two housings
    # Where one link's housing ends and the next one's begins, along the axis of the joint between them.
    split_s, split_e, split_1 = 0.526 * up, (up + fo) / 2, fo + 0.4524 * (d4 - fo)
    split_2, split_3 = 0.5013 * d5, 0.5423 * d6
    wall_1, wall_2 = 0.050 * kw, 0.048 * kw
    com = _centres(arm)
    shoulder = _inertia(arm.masses[0], 0.075 * ks, 0.178 * ks, "y")
    upper = _inertia(arm.masses[1], 0.075 * ks, a2, "x")
    fore = _inertia(arm.masses[2], 0.075 * ke, a3, "x")
    wrist_1 = _inertia(arm.masses[3], 0.075 * kw, 0.12 * kw, "y")
    wrist_2 = _inertia(arm.masses[4], 0.075 * kw, 0.12 * kw, "y")
    wrist_3 = _inertia(arm.masses[5], 0.075 * kw, 0.12 * kw, "z")

    def cylinder(
        radius: float, start: float, end: float, axis: str = "z", x: float = 0, z: float = 0, look: str = ""
    ) -> str:
        """Return a visible cylinder along an axis of the link, from start to end."""
        middle = (start + end) / 2
        pos = {"x": (middle, 0, z), "y": (x, middle, z), "z": (x, 0, middle)}[axis]
        direction = {"x": "1 0 0", "y": "0 1 0", "z": "0 0 1"}[axis]
        material = f' material="{name}_{look}"' if look else ""
        size = f"{radius:.5g} {abs(end - start) / 2:.5g}"
        return f'<geom class="{name}_visual" size="{size}" pos="{_text(pos)}" zaxis="{direction}"{material}/>'

    def ring(radius: float, at: float, axis: str = "z", x: float = 0, z: float = 0) -> str:
        return cylinder(radius, at - gap, at + gap, axis, x, z, "ring")

    def cap(radius: float, at: float, axis: str = "z", x: float = 0, z: float = 0) -> str:
        return cylinder(radius, at - 0.005 * ks, at + 0.005 * ks, axis, x, z, "cap")

    def capsule(link: str, radius: float, start: Vec3, end: Vec3) -> str:
        return (
            f'<geom class="{name}_collision" name="{link}_collision" size="{radius:.5g}" '
            f'fromto="{_text(start)} {_text(end)}"/>'
        )

    def block(link: str, radius: float, half: float, pos: Vec3, axis: str = "0 0 1") -> str:
        return (
            f'<geom class="{name}_collision" name="{link}_collision" type="cylinder" size="{radius:.5g} {half:.5g}" '
            f'pos="{_text(pos)}" zaxis="{axis}"/>'
        )

    return f"""<mujoco model="{name}">
  <compiler angle="radian" autolimits="true" inertiafromgeom="false"/>
  <default>
    <default class="{name}">
      <joint type="hinge" axis="0 0 1" range="-6.283185307179586 6.283185307179586"/>
      <default class="{name}_shoulder">{_joint(arm, 0)}</default>
      <default class="{name}_elbow">{_joint(arm, 1, 'range="-3.141592653589793 3.141592653589793"')}</default>
      <default class="{name}_wrist">{_joint(arm, 2)}</default>
      <default class="{name}_visual">
        <geom type="cylinder" group="2" contype="0" conaffinity="0" mass="0" material="{name}_aluminium"/>
      </default>
      <default class="{name}_collision">
        <geom type="capsule" group="3" mass="0" rgba="0.9 0.5 0.2 0.4"/>
      </default>
    </default>
  </default>
  <asset>
    <material name="{name}_aluminium" rgba="0.74 0.755 0.77 1" specular="0.45" shininess="0.55"/>
    <material name="{name}_joint" rgba="0.66 0.68 0.70 1" specular="0.4" shininess="0.5"/>
    <material name="{name}_cap" rgba="0.36 0.52 0.64 1" specular="0.25" shininess="0.35"/>
    <material name="{name}_ring" rgba="0.13 0.14 0.155 1" specular="0.2" shininess="0.3"/>
    <material name="{name}_steel" rgba="0.60 0.61 0.62 1" specular="0.7" shininess="0.75"/>
  </asset>
  <worldbody>
    <body name="base_link" childclass="{name}">
      <inertial mass="4" pos="0 0 0.03" diaginertia="0.0092 0.0092 0.0160"/>
      {cylinder(0.095 * ks, 0, 0.012 * ks, look="steel")}
      {cylinder(0.082 * ks, 0.012 * ks, 0.048 * ks, look="joint")}
      {ring(0.076 * ks, 0.052 * ks)}
      {block("base", 0.088 * ks, 0.028 * ks, (0, 0, 0.028 * ks))}
      <body name="shoulder_link" gravcomp="1">
        {_inertial(arm.masses[0], com[0], shoulder)}
        <joint name="shoulder_pan_joint" class="{name}_shoulder"/>
        {cylinder(rs, 0.056 * ks, d1, look="joint")}
        {cylinder(rs, gap - split_s, 0.072 * ks, "y", z=d1, look="joint")}
        {cap(rs - 0.006 * ks, 0.077 * ks, "y", z=d1)}
        {ring(rs - 0.003 * ks, -split_s, "y", z=d1)}
        {block("shoulder", rs, (split_s - gap + 0.072 * ks) / 2, (0, (gap - split_s + 0.072 * ks) / 2, d1), "0 -1 0")}
        <body name="upper_arm_link" pos="0 0 {d1}" quat="{_HALF_TURN}" gravcomp="1">
          {_inertial(arm.masses[1], com[1], upper)}
          <joint name="shoulder_lift_joint" class="{name}_shoulder"/>
          {cylinder(rs, split_s + gap, up + ru, look="joint")}
          {cap(rs - 0.006 * ks, up + ru + gap)}
          {cylinder(ru, -a2, 0, "x", z=up)}
          {ring(ru + 0.0025 * ks, -0.100 * ks, "x", z=up)}
          {ring(ru + 0.0025 * ks, 0.082 * ks - a2, "x", z=up)}
          {cylinder(re, split_e + gap, up + ru, x=-a2, look="joint")}
          {cap(re - 0.005 * ke, up + ru + gap, x=-a2)}
          {ring(re - 0.003 * ke, split_e, x=-a2)}
          {capsule("upper_arm", 0.064 * ks, (0, 0, up), (-a2, 0, up))}
          <body name="forearm_link" pos="{-a2} 0 0" gravcomp="1">
            {_inertial(arm.masses[2], com[2], fore)}
            <joint name="elbow_joint" class="{name}_elbow"/>
            {cylinder(re, fo - 0.058 * ke, split_e - gap, look="joint")}
            {cap(re - 0.005 * ke, fo - 0.062 * ke)}
            {cylinder(rf, -a3, 0, "x", z=fo)}
            {ring(rf + 0.0025 * ke, -0.085 * ke, "x", z=fo)}
            {ring(rf + 0.0025 * ke, 0.067 * ke - a3, "x", z=fo)}
            {cylinder(0.050 * kw, fo - rf, split_1 - gap, x=-a3, look="joint")}
            {cap(0.046 * kw, fo - rf - gap, x=-a3)}
            {ring(0.0475 * kw, split_1, x=-a3)}
            {capsule("forearm", 0.052 * ke, (0, 0, fo), (-a3, 0, fo))}
            <body name="wrist_1_link" pos="{-a3} 0 0" gravcomp="1">
              {_inertial(arm.masses[3], com[3], wrist_1)}
              <joint name="wrist_1_joint" class="{name}_wrist"/>
              {cylinder(rw, split_1 + gap, d4 + wall_1, look="joint")}
              {cap(0.045 * kw, d4 + wall_1 + gap)}
              {cylinder(rw, gap - split_2, 0.006 * kw, "y", z=d4, look="joint")}
              {ring(0.0465 * kw, -split_2, "y", z=d4)}
              {capsule("wrist_1", 0.048 * kw, (0, 0, d4 - 0.019 * kw), (0, 0, d4 + 0.006 * kw))}
              <body name="wrist_2_link" pos="0 0 {d4}" quat="{_HALF_TURN}" gravcomp="1">
                {_inertial(arm.masses[4], com[4], wrist_2)}
                <joint name="wrist_2_joint" class="{name}_wrist"/>
                {cylinder(rw, split_2 + gap, d5 + wall_2, look="joint")}
                {cap(0.045 * kw, d5 + wall_2 + gap)}
                {cylinder(rw, -0.006 * kw, split_3 - gap, "y", z=d5, look="joint")}
                {ring(0.0465 * kw, split_3, "y", z=d5)}
                {capsule("wrist_2", 0.048 * kw, (0, 0, d5 - 0.0177 * kw), (0, 0, d5 + 0.0043 * kw))}
                <body name="wrist_3_link" pos="0 0 {d5}" quat="{_HALF_TURN_BACK}" gravcomp="1">
                  {_inertial(arm.masses[5], com[5], wrist_3)}
                  <joint name="wrist_3_joint" class="{name}_wrist"/>
                  {cylinder(0.045 * kw, split_3 + gap, d6 - 0.0082 * kw, look="joint")}
                  {cylinder(0.040 * kw, d6 - 0.0082 * kw, d6, look="steel")}
                  {block("wrist_3", 0.044 * kw, (d6 - split_3 - gap) / 2, (0, 0, (d6 + split_3 + gap) / 2))}
                  <site name="tool0" pos="0 0 {d6}" group="4" size="0.01"/>
                </body>
              </body>
            </body>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
</mujoco>
"""


def _joint(arm: _Arm, group: int, more: str = "") -> str:
    effort = arm.efforts[group]
    return f'<joint armature="{_ARMATURES[arm.sizes[group]]}" actuatorfrcrange="{-effort} {effort}" {more}/>'


def _centres(arm: _Arm) -> list[Vec3]:
    """Return the centres of mass in the links' own frames: (a, 0, d) + Rx(alpha) c for c in the frame at the end."""
    lengths = ((0, arm.d1), (-arm.a2, 0), (-arm.a3, 0), (0, arm.d4), (0, arm.d5), (0, arm.d6))
    turns = (1, 0, 0, 1, -1, 0)  # alpha in quarters of a turn
    found: list[Vec3] = []
    for (a, d), turn, (x, y, z) in zip(lengths, turns, arm.centres, strict=True):
        y, z = {0: (y, z), 1: (-z, y), -1: (z, -y)}[turn]
        found.append((x + a, y, z + d))
    return found


def _inertia(mass: float, radius: float, length: float, axis: str) -> Vec3:
    """Return the moments of inertia of a cylinder along an axis."""
    along, across = mass * radius**2 / 2, mass * (3 * radius**2 + length**2) / 12
    x, y, z = (along if name == axis else across for name in "xyz")
    return x, y, z


def _inertial(mass: float, pos: Vec3, inertia: Vec3) -> str:
    return f'<inertial mass="{mass}" pos="{_text(pos)}" diaginertia="{_text(inertia)}"/>'


def _text(vector: Vec3) -> str:
    return " ".join(f"{value:.6g}" for value in vector)
