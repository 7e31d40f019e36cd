"""Contact forces on bodies as MuJoCo leaves them after a step. Shapes: N simulations, nq, nv, D rotating joints.

MuJoCo's ``cfrc_ext`` is computed in a pass of its own, ``mj_rnePostConstraint``, that a batch makes only for sensors
which need it, and then where a substep begins. With the Runge-Kutta integrator all other derived fields belong to
the substep's last stage. This module computes the stages again, so that the forces belong to the same stage.
"""

from __future__ import annotations

import mujoco
import numpy as np
from mujoco.batch import Batch

_ACC = mujoco.mjtStage.mjSTAGE_ACC.value
_FREE, _BALL = int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_BALL)
_STAGES = (0.5, 0.5, 1.0)  # where the second to the fourth stage lie in a substep, of the classic method of order 4


class ExternalForces:
    """Steps a batch, and keeps the forces on the bodies.

    Attributes:
        values: force and torque on each body by contacts and users, as MuJoCo's ``cfrc_ext``, [N, bodies, 6]; 0 before
            the first step of an episode, as after ``mj_resetData``.
    """

    def __init__(self, batch: Batch) -> None:
        """Start with no forces; the model has a sensor for which the engine computes them."""
        self._batch = batch
        self._computed = batch.bind("cfrc_ext")
        self._qpos, self._qvel, self._qacc = batch.bind("qpos"), batch.bind("qvel"), batch.bind("qacc")
        self._coordinates = Coordinates(batch.model)
        self.values = np.zeros_like(self._computed)

    def step(self, ids: np.ndarray | None, substeps: int) -> None:
        """Advance simulations (None: all) by ``substeps`` substeps."""
        rows = slice(None) if ids is None else ids
        if self._batch.model.opt.integrator != mujoco.mjtIntegrator.mjINT_RK4:
            self._batch.step(ids, nstep=substeps)
            self.values[rows] = self._computed[rows]
            return
        if substeps > 1:
            self._batch.step(ids, nstep=substeps - 1)
        start = self._batch.state.copy()
        self._compute_last_stage(ids)
        self.values[rows] = self._computed[rows]
        self._batch.state[:] = start
        self._batch.step(ids, nstep=1)

    def _compute_last_stage(self, ids: np.ndarray | None) -> None:
        """Compute the last stage of the next substep; the state becomes that stage's.

        MuJoCo's method is that of Munthe-Kaas ("High order Runge-Kutta methods on manifolds", 1999): stages are
        increments of the first position, and a rate of change of an increment follows from the velocity.
        """
        timestep = float(self._batch.model.opt.timestep)
        qpos, qvel = self._qpos.copy(), self._qvel.copy()
        self._batch.forward(ids, stage=_ACC)
        increment = np.zeros_like(qvel)
        for share in _STAGES:
            rate = self._coordinates.rate_of(increment, self._qvel)
            increment = share * timestep * rate
            velocity = qvel + share * timestep * self._qacc
            self._qpos[:] = self._coordinates.moved(qpos, increment)
            self._qvel[:] = velocity
            self._batch.forward(ids, stage=_ACC)


class Coordinates:
    """The arithmetic of a model's positions, of which some are quaternions."""

    def __init__(self, model: mujoco.MjModel) -> None:
        plain: list[tuple[int, int]] = []  # (place in qpos, place in qvel)
        turning: list[tuple[int, int]] = []
        for joint in range(model.njnt):
            kind, q, v = int(model.jnt_type[joint]), int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
            if kind == _BALL:
                turning.append((q, v))
            elif kind == _FREE:
                plain += [(q + i, v + i) for i in range(3)]
                turning.append((q + 3, v + 3))
            else:
                plain.append((q, v))
        self._plain = tuple(np.array(plain, dtype=np.int64).reshape(-1, 2).T)
        firsts = np.array(turning, dtype=np.int64).reshape(-1, 2)
        self._quats = firsts[:, :1] + np.arange(4)  # [D, 4]
        self._turns = firsts[:, 1:] + np.arange(3)  # [D, 3]

    def moved(self, qpos: np.ndarray, increment: np.ndarray) -> np.ndarray:
        """Return positions [N, nq] moved by increments [N, nv]; rotations are in the bodies' own frames."""
        moved = qpos.copy()
        moved[:, self._plain[0]] += increment[:, self._plain[1]]
        turn = increment[:, self._turns]
        half = 0.5 * np.linalg.norm(turn, axis=2, keepdims=True)
        # sin(half) / (2 half): sinc is sin(pi x) / (pi x).
        rotation = np.concatenate((np.cos(half), 0.5 * np.sinc(half / np.pi) * turn), axis=2)
        quat = _product(qpos[:, self._quats], rotation)
        moved[:, self._quats] = quat / np.linalg.norm(quat, axis=2, keepdims=True)
        return moved

    def rate_of(self, increment: np.ndarray, qvel: np.ndarray) -> np.ndarray:
        """Return how fast increments [N, nv] grow at velocities [N, nv].

        Of a rotation u in the body's frame with angular velocity w it is w + u x w / 2 + c u x (u x w), where
        c = (1 - (t / 2) / tan(t / 2)) / t^2 with t = |u|: the inverse of the exponential map's derivative.
        """
        rate = qvel.copy()
        turn, velocity = increment[:, self._turns], qvel[:, self._turns]
        square = np.square(turn).sum(axis=2, keepdims=True)
        half = 0.5 * np.sqrt(square)
        with np.errstate(invalid="ignore", divide="ignore"):  # at 0, where the limit is taken
            factor = np.where(square > 1e-8, (1.0 - half / np.tan(half)) / square, 1.0 / 12.0)
        once = np.cross(turn, velocity)
        rate[:, self._turns] = velocity + 0.5 * once + factor * np.cross(turn, once)
        return rate


def _product(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Return the products of quaternions wxyz [..., 4]."""
    w, x, y, z = np.moveaxis(one, -1, 0)
    a, b, c, d = np.moveaxis(two, -1, 0)
    parts = (
        w * a - x * b - y * c - z * d,
        w * b + x * a + y * d - z * c,
        w * c - x * d + y * a + z * b,
        w * d + x * c - y * b + z * a,
    )
    return np.stack(parts, axis=-1)
