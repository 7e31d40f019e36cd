"""Drives, mimic joints, collisions and contact sensors of articulations."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np

from embodichain.lab.sim import servos
from embodichain.lab.sim.assets import joint_aliases
from embodichain.lab.sim.cfg import JointDrivePropertiesCfg
from embodichain.utils import ConfigError, logger, unknown_name

# Type of a sensor of the sum of the forces of all its object's contacts, as one.
NET_FORCE = {
    "type": mujoco.mjtSensor.mjSENS_CONTACT,
    "intprm": [1 << int(mujoco.mjtConDataField.mjCONDATA_FORCE), 3, 1],  # 3: several contacts are reduced to their sum
}
_SENSORS: dict[str, dict[str, Any]] = {
    "force": NET_FORCE,
    "pos": {"type": mujoco.mjtSensor.mjSENS_FRAMEPOS},
    "vel": {"type": mujoco.mjtSensor.mjSENS_FRAMELINVEL},
}


def match_names(patterns: Iterable[str], names: Sequence[str], place: str, kind: str = "joint") -> list[str]:
    """Return the names that any pattern (a name, or a regular expression for all of it) matches, in their order.

    The joints of a UR arm answer to their aliases, too, where a pattern says ``JOINT``: ``.*1.*`` means names alone.
    A ConfigError where a pattern matches nothing, or is no regular expression.
    """
    aliases = joint_aliases(names) if kind == "joint" else {}
    found: set[str] = set()
    for pattern in patterns:
        meant = aliases if "JOINT" in pattern else {}
        called = [(name, other) for name in names for other in (name, meant.get(name, name))]
        try:
            matches = [name for name, other in called if other == pattern or re.fullmatch(pattern, other)]
        except re.error as error:
            raise ConfigError(f"{place}: '{pattern}' is no regular expression: {error}") from error
        if not matches:
            raise ConfigError(f"{place}: {unknown_name(kind, pattern, names)}")
        found.update(matches)
    return [name for name in names if name in found]


def match_driven(patterns: Iterable[str], names: Sequence[str], undriven: Container[str], place: str) -> list[str]:
    """Return the joints that any pattern matches and that have a drive, in their order; ConfigError where none has."""
    found: set[str] = set()
    for pattern in patterns:
        matches = match_names([pattern], names, place)
        if all(name in undriven for name in matches):
            raise ConfigError(
                f"{place}: {', '.join(matches)} cannot be driven: it follows another joint, or the model's own "
                f"actuators leave it free. Driven are: {', '.join(name for name in names if name not in undriven)}"
            )
        found.update(matches)
    return [name for name in names if name in found and name not in undriven]


def set_drives(
    spec: mujoco.MjSpec, joints: Mapping[str, str], undriven: Container[str], drive: JointDrivePropertiesCfg, place: str
) -> list[str]:
    """Add a position actuator, named like the joint, to every driven one of ``joints`` (short name -> spec's name).

    Joints whose short names are in ``undriven`` get none. Return what of the config the file overrules, one per line.
    """
    stiffness, damping, effort, friction, armature, backlash = (
        per_joint(drive, key, list(joints), undriven, place)
        for key in ("stiffness", "damping", "max_effort", "friction", "armature", "backlash")
    )
    gains = {key: value for key in ("stiffness", "damping") if isinstance(value := getattr(drive, key), dict)}
    named = {key: {*match_driven(value, list(joints), undriven, place)} for key, value in gains.items()}
    for key, given in named.items():
        if absent := ", ".join(sorted(set().union(*named.values()) - given)):
            default = getattr(JointDrivePropertiesCfg(), key)
            logger.log_warning(f"{place}.drive_pros.{key}: not given for {absent}: the default, {default:g}")
    lower: list[str] = []
    engine = mujoco.MjSpec().default  # the file's own defaults for actuators are not meant for drives
    for name in (name for name in joints if name not in undriven):
        kp, kd, limit, joint = stiffness[name], damping[name], effort[name], joints[name]
        moved = servos.add_play(spec, joint, backlash[name]) if backlash[name] else spec.joint(joint)
        actuator = spec.add_actuator(engine, name=joint, target=moved.name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
        actuator.biastype = mujoco.mjtBias.mjBIAS_AFFINE
        actuator.gainprm[:1], actuator.biasprm[:3] = [kp], [0.0, -kp, -kd]
        if limit is not None:
            actuator.forcerange = [-limit, limit]  # the maker's own limit of the joint (actfrcrange) holds, too
            if 0.0 < (own := float(np.abs(moved.actfrcrange).max())) < limit:
                lower.append(f"{name} ({own:g})")
        if friction[name] is not None:
            moved.frictionloss = friction[name]
        if armature[name] is not None:
            moved.armature = armature[name]
        if drive.servo is not None:
            if moved.type != mujoco.mjtJoint.mjJNT_HINGE:
                raise ConfigError(f"servo: joint '{name}' is not a hinge")
            servos.SERVOS[drive.servo].put(actuator, moved, drive.servo_gain)
    return [f"limits of the file below max_effort hold: {', '.join(lower)}"] if lower else []


def per_joint(
    drive: JointDrivePropertiesCfg, key: str, joints: Sequence[str], undriven: Container[str], place: str
) -> dict[str, Any]:
    """Return a number of the drives by joint; joints that the config does not name have the default."""
    value, default = getattr(drive, key), getattr(JointDrivePropertiesCfg(), key)
    if not isinstance(value, dict):
        return dict.fromkeys(joints, value)
    result = dict.fromkeys(joints, default)
    for pattern, number in value.items():
        result |= dict.fromkeys(match_driven([pattern], joints, undriven, f"{place}.drive_pros.{key}"), number)
    return result


def scale_by_inertia(model: mujoco.MjModel, joints: Container[str]) -> None:
    """Multiply the gains of the drives of some joints by each joint's inertia in the reference pose."""
    for actuator, joint in driven_joints(model):
        if model.joint(joint).name in joints:
            moved = model.jnt_dofadr[[*{joint, int(model.actuator_trnid[actuator, 0])}]]  # with play, both
            model.actuator_gainprm[actuator] *= model.dof_M0[moved].sum()
            model.actuator_biasprm[actuator] *= model.dof_M0[moved].sum()


def soften_stiff_drives(model: mujoco.MjModel) -> dict[str, str]:
    """Scale down drives with more damping than a substep can integrate, keeping the ratio of stiffness to damping.

    MuJoCo treats a drive's damping implicitly only while its force is below the limit. At the limit, a damping d on
    a joint of effective inertia m is stable for d < 2 m / dt; twice that margin is kept. Return a text for each
    changed drive, by its name.
    """
    inertia = smallest_inertia(model)
    softened = {}
    for actuator, _ in driven_joints(model):
        damping = -model.actuator_biasprm[actuator, 2]
        largest = inertia[model.jnt_dofadr[model.actuator_trnid[actuator, 0]]] / model.opt.timestep
        if damping > largest:
            model.actuator_gainprm[actuator] *= largest / damping
            model.actuator_biasprm[actuator] *= largest / damping
            name = model.actuator(actuator).name
            softened[name] = f"{name} stiffness {model.actuator_gainprm[actuator, 0]:.4g} damping {largest:.4g}"
    return softened


def smallest_inertia(model: mujoco.MjModel) -> np.ndarray:
    """Return the smallest 1 / (M^-1)_jj over sampled poses: the inertia of each degree of freedom, kg or kg m^2."""
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    scalar = model.jnt_type >= int(mujoco.mjtJoint.mjJNT_SLIDE)
    low, high = np.where(model.jnt_limited[:, None], model.jnt_range, [-np.pi, np.pi])[scalar].T
    smallest = np.full(model.nv, np.inf)
    inverse = np.zeros((model.nv, model.nv))
    for _ in range(64):
        data.qpos[model.jnt_qposadr[scalar]] = rng.uniform(low, high)
        mujoco.mj_fwdPosition(model, data)
        mujoco.mj_solveM(model, data, inverse, np.eye(model.nv))
        smallest = np.minimum(smallest, 1.0 / np.diag(inverse))
    return smallest


def limit_collisions(
    spec: mujoco.MjSpec,
    links: Mapping[str, str],
    ground_pairs: list[tuple[str, dict[str, Any]]],
    patterns: Sequence[str],
    place: str,
) -> None:
    """Disable the collisions of all shapes except the named ones and the named links'; no patterns: of all.

    Patterns are names or regular expressions of links (short name -> name in the spec) that have collision shapes, or
    of such shapes. Disabled shapes are removed from ``ground_pairs``, their names and contacts with the floor.
    """
    paired = {name for pair in spec.pairs for name in (pair.geomname1, pair.geomname2)} | {g for g, _ in ground_pairs}
    touching = [geom for geom in spec.geoms if geom.contype or geom.conaffinity or geom.name in paired]
    short = {full: name for name, full in links.items()}
    # A shape of the world, such as a floor in the file, has no link.
    owners = [short.get(geom.parent.name, "") for geom in touching]
    names = [name for name in links if name in owners] + [geom.name for geom in touching if geom.name]
    kept = set(match_names(patterns, names, place, "link or collision shape"))
    left_out = set()
    for geom, owner in zip(touching, owners, strict=True):
        if not kept & {owner, geom.name}:
            geom.contype = geom.conaffinity = 0
            left_out.add(geom.name)
    ground_pairs[:] = [pair for pair in ground_pairs if pair[0] not in left_out]
    for pair in [pair for pair in spec.pairs if left_out & {pair.geomname1, pair.geomname2}]:
        spec.delete(pair)


def sense_links(
    spec: mujoco.MjSpec, uid: str, patterns: Iterable[str], links: Mapping[str, str], prefix: str, place: str
) -> list[str]:
    """Add sensors ``<uid>/<force, pos or vel>/<link>`` of an articulation's links, all forces first; return the links.

    ``links`` are the articulation's bodies in the model by link name; its names there begin with ``prefix``.
    """
    geoms = (geom.name for geom in spec.geoms if geom.name.startswith(prefix) and geom.contype)
    shapes = {name.removeprefix(prefix): name for name in geoms}
    found: set[str] = set()
    for pattern in patterns:  # shapes count where there is no link
        matches = match_names([pattern], [*links, *shapes], place, "link")
        found.update([name for name in matches if name in links] or matches)
    names = [name for name in (*links, *shapes) if name in found]
    touching = {geom.parent.name for geom in spec.geoms if geom.contype or geom.conaffinity}
    if silent := [name for name in names if name in links and links[name] not in touching]:
        logger.log_warning(
            f"{place}: no collision shape, so that nothing is sensed there: {', '.join(silent)} (a robot's "
            "collision_links name the links that keep theirs)"
        )
    for kind, parameters in _SENSORS.items():
        body = mujoco.mjtObj.mjOBJ_BODY if kind == "force" else mujoco.mjtObj.mjOBJ_XBODY
        for name in names:
            sensor = spec.add_sensor(name=f"{uid}/{kind}/{name}", objname=links.get(name) or shapes[name], **parameters)
            sensor.objtype = body if name in links else mujoco.mjtObj.mjOBJ_GEOM
    return names


def driven_joints(model: mujoco.MjModel) -> list[tuple[int, int]]:
    """Return each actuator of one hinge or slide, with the joint that it moves, maybe through play."""
    is_joint = model.actuator_trntype == int(mujoco.mjtTrn.mjTRN_JOINT)
    is_scalar = model.jnt_type >= int(mujoco.mjtJoint.mjJNT_SLIDE)
    pushed = model.actuator_trnid[:, 0].tolist()
    return [(i, servos.joint_of(model, j)) for i, j in enumerate(pushed) if is_joint[i] and is_scalar[j]]


def couplings(model: mujoco.MjModel) -> list[tuple[int, int, np.ndarray]]:
    """Return (follower, leader, the five coefficients of the polynomial) of the active equalities of two joints."""
    is_joint = (model.eq_type == int(mujoco.mjtEq.mjEQ_JOINT)) & model.eq_active0.astype(bool) & (model.eq_obj2id >= 0)
    return [
        (int(model.eq_obj1id[e]), int(model.eq_obj2id[e]), model.eq_data[e, :5].copy())
        for e in np.flatnonzero(is_joint)
    ]


def mimics(model: mujoco.MjModel) -> list[tuple[int, int, np.ndarray]]:
    """Return the :func:`couplings`, leaders first; the roles are swapped where a drive moves the follower alone."""
    driven = {joint for _, joint in driven_joints(model)}
    left: list[tuple[int, int, np.ndarray]] = []
    for one, two, line in couplings(model):
        if one in driven and two not in driven and line[1] and not line[2:].any():
            one, two, line[:2] = two, one, [-line[0] / line[1], 1.0 / line[1]]
        left.append((one, two, line))
    ordered: list[tuple[int, int, np.ndarray]] = []
    while left:
        followers = {follower for follower, _, _ in left}
        ready = [mimic for mimic in left if mimic[1] not in followers] or left  # a circle has no beginning
        ordered += ready
        left = [mimic for mimic in left if not any(mimic is other for other in ready)]
    return ordered
