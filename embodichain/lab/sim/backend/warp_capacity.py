"""Capacity for contacts and constraints, measured on the scene.

A GPU's memory is allocated before the simulation begins, so the contact buffers need a size in advance.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

_ROLLOUTS, _STEPS, _HOLD = 8, 100, 25
_MARGIN = 2.0
_CONTACTS, _CONSTRAINTS = 32, 64  # in steps of these, since kernels are compiled for the number of constraints
_UNLIMITED = 0.5  # how far from the initial position a joint without limits is sent, rad or m


@dataclass(frozen=True)
class Capacity:
    """The largest numbers of contacts and constraints of an environment.

    Attributes:
        contacts: average over all environments, which share one pool; pairs of near geoms count, too.
        constraints: rows of any one environment.
    """

    contacts: int
    constraints: int

    def grown(self, contacts: bool, constraints: bool) -> Capacity:
        """Return it with twice the contacts, twice the constraints, or both."""
        return Capacity(self.contacts * (1 + contacts), self.constraints * (1 + constraints))


def probe(model: mujoco.MjModel) -> Capacity:
    """Return twice the largest numbers found under random drive targets, rounded up.

    It starts at keyframe 0, and sends every drive to targets within its joint's limits for 25 substeps each.
    """
    random = np.random.default_rng(0)
    data = mujoco.MjData(model)
    contacts = constraints = 0
    low, high = _targets(model)
    for _ in range(_ROLLOUTS):
        mujoco.mj_resetDataKeyframe(model, data, 0)
        for step in range(_STEPS):
            if step % _HOLD == 0:
                data.ctrl[:] = random.uniform(low, high)
            mujoco.mj_step(model, data)
            contacts = max(contacts, data.ncon, _near_pairs(model, data) if step % _HOLD == 0 else 0)
            constraints = max(constraints, data.nefc)
    return Capacity(_rounded(contacts, _CONTACTS), _rounded(constraints, _CONSTRAINTS))


def _rounded(most: int, step: int) -> int:
    return step * max(1, int(np.ceil(_MARGIN * most / step)))


def _targets(model: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Return the drives' lowest and highest targets, [nu] each."""
    joint = model.actuator_trnid[:, 0]
    home = model.key_ctrl[0]
    is_limited = model.jnt_limited[joint].astype(bool)
    low = np.where(is_limited, model.jnt_range[joint, 0], home - _UNLIMITED)
    high = np.where(is_limited, model.jnt_range[joint, 1], home + _UNLIMITED)
    return low, high


def _near_pairs(model: mujoco.MjModel, data: mujoco.MjData) -> int:
    """Return the number of pairs of geoms that may collide and have overlapping bounding spheres."""
    body = model.geom_bodyid
    one, two = np.triu_indices(model.ngeom, k=1)
    bits = model.geom_contype[one] & model.geom_conaffinity[two] | model.geom_contype[two] & model.geom_conaffinity[one]
    may_touch = (bits != 0) & (model.body_weldid[body[one]] != model.body_weldid[body[two]])
    one, two = one[may_touch], two[may_touch]
    radius = np.where(model.geom_rbound > 0.0, model.geom_rbound, np.inf)  # planes have none
    distance = np.linalg.norm(data.geom_xpos[one] - data.geom_xpos[two], axis=1)
    return int((distance <= radius[one] + radius[two]).sum())
