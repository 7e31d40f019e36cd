"""The initial state of a compiled scene: positions, drive targets, and collisions."""

from collections.abc import Collection, Mapping

import mujoco
import numpy as np

from embodichain.utils import logger

# Deeper than resting contacts are (soft contacts give way by some tenths of a millimetre).
_TOLERANCE = 1e-3
_PAIRS_SHOWN = 4


def write_keyframe(model: mujoco.MjModel, init_qpos: Mapping[str, float]) -> None:
    """Make keyframe 0 the initial state, with every drive's target at its joint's position.

    Args:
        model: joints without a position in ``init_qpos`` are at zero, or at the nearest limit.
        init_qpos: positions by joint; joints that mimic others follow from these.
    """
    qpos = model.key_qpos[0]
    qpos[:] = model.qpos0
    limited = (model.jnt_type >= int(mujoco.mjtJoint.mjJNT_SLIDE)) & model.jnt_limited.astype(bool)
    address = model.jnt_qposadr[limited]
    qpos[address] = np.clip(qpos[address], *model.jnt_range[limited].T)
    for name, q in init_qpos.items():
        qpos[model.jnt_qposadr[model.joint(name).id]] = q
    for follower, leader, coefficients in mimics(model):
        one, two = model.jnt_qposadr[follower], model.jnt_qposadr[leader]
        moved = qpos[two] - model.qpos0[two]
        qpos[one] = model.qpos0[one] + np.polynomial.polynomial.polyval(moved, coefficients)
    for actuator in range(model.nu):
        joint = model.actuator_trnid[actuator, 0]
        model.key_ctrl[0][actuator] = qpos[model.jnt_qposadr[joint]]
    for body in range(model.nbody):
        if (mocap := model.body_mocapid[body]) >= 0:
            model.key_mpos[0][3 * mocap : 3 * mocap + 3] = model.body_pos[body]
            model.key_mquat[0][4 * mocap : 4 * mocap + 4] = model.body_quat[body]


def shift_free_bases(model: mujoco.MjModel, uids: Collection[str], offset: np.ndarray) -> None:
    """Move the free bases of articulations by ``offset`` [3], m, in keyframe 0."""
    for joint in np.flatnonzero(model.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE)):
        if model.body(model.jnt_bodyid[joint]).name.partition("/")[0] in uids:
            first = model.jnt_qposadr[joint]
            model.key_qpos[0][first : first + 3] += offset


def mimics(model: mujoco.MjModel) -> list[tuple[int, int, np.ndarray]]:
    """Return (follower, leader, the five coefficients of the polynomial) by joint, leaders first."""
    is_joint = (model.eq_type == int(mujoco.mjtEq.mjEQ_JOINT)) & model.eq_active0.astype(bool) & (model.eq_obj2id >= 0)
    left = [
        (int(model.eq_obj1id[e]), int(model.eq_obj2id[e]), model.eq_data[e, :5].copy()) for e in np.nonzero(is_joint)[0]
    ]
    ordered: list[tuple[int, int, np.ndarray]] = []
    while left:
        followers = {follower for follower, _, _ in left}
        ready = [mimic for mimic in left if mimic[1] not in followers] or left  # a circle has no beginning
        ordered += ready
        left = [mimic for mimic in left if not any(mimic is other for other in ready)]
    return ordered


def warn_of_collisions(model: mujoco.MjModel) -> None:
    """Log one warning with the bodies that penetrate each other in the initial state, and the depth."""
    data = mujoco.MjData(model)
    mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_fwdPosition(model, data)
    depths: dict[tuple[str, str], float] = {}
    for contact in data.contact:
        pair = (_owner(model, contact.geom[0]), _owner(model, contact.geom[1]))
        depths[pair] = max(depths.get(pair, 0.0), -float(contact.dist))
    deep = sorted(((depth, pair) for pair, depth in depths.items() if depth > _TOLERANCE), reverse=True)
    if deep:
        shown = [f"'{one}' and '{two}' by {1000 * depth:.1f} mm" for depth, (one, two) in deep[:_PAIRS_SHOWN]]
        more = f", and {len(deep) - _PAIRS_SHOWN} more pairs" if len(deep) > _PAIRS_SHOWN else ""
        logger.log_warning(f"initial poses are in collision: {', '.join(shown)}{more}")


def _owner(model: mujoco.MjModel, geom: int) -> str:
    body = model.geom_bodyid[geom]
    return str(model.body(body).name) if body else model.geom(geom).name or "world"
