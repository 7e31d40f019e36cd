"""Where an articulation stands. Shapes: N environments, n in ``env_ids`` (None: all), R bodies on the world."""

from __future__ import annotations

import math

import mujoco
import torch
from torch import Tensor

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.cfg import ArticulationCfg
from embodichain.lab.sim.math import matrix_from_quat, pose_from_row, quat_from_euler, quat_mul

__all__ = ["BasePose"]

_FREE = int(mujoco.mjtJoint.mjJNT_FREE)


class BasePose:
    """The pose of an articulation's base: of the state where it is free, else of each environment's model."""

    state_names = ("_row", "_shift")

    def __init__(self, cfg: ArticulationCfg, backend: Backend) -> None:
        self._backend = backend
        model, device = backend.model, backend.device
        self.bodies: list[int] = [b for b in range(1, model.nbody) if model.body(b).name.startswith(f"{cfg.uid}/")]
        """All bodies of the articulation in the model."""
        self._roots = [b for b in self.bodies if model.body_parentid[b] == 0]
        joint = int(model.body_jntadr[self._roots[0]])
        self._is_free = joint >= 0 and model.jnt_type[joint] == _FREE
        self._qpos, self._qvel = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
        angles = torch.tensor([math.radians(angle) for angle in cfg.init_rot], device=device)
        self.initial: Tensor = torch.cat((torch.tensor(cfg.init_pos, device=device), quat_from_euler(angles)))
        """The configured pose, [7]: position m, quaternion wxyz."""
        self._from_initial = torch.linalg.inv(pose_from_row(self.initial[None]))
        self._row = self.initial.repeat(backend.num_envs, 1)
        self._shift: Tensor | None = None
        # [R, 3] and [R, 4]: of the bodies in the base's frame. A base link without a joint may have become the world's.
        turn = _conjugate(self.initial[3:])
        pos = torch.tensor(model.body_pos[self._roots], dtype=torch.float32, device=device) - self.initial[:3]
        self._pos = pos @ matrix_from_quat(turn).T
        self._quat = quat_mul(turn, torch.tensor(model.body_quat[self._roots], dtype=torch.float32, device=device))

    def get(self) -> Tensor:
        """Return position and quaternion wxyz in the environment's frame, [N, 7]."""
        return self._backend.qpos[:, self._qpos : self._qpos + 7] if self._is_free else self._row

    @property
    def shift(self) -> Tensor | None:
        """What moves the configured base to the present one, [N, 4, 4]; None while no fixed base was moved."""
        return self._shift

    def set(self, row: Tensor, env_ids: Tensor) -> None:
        """Move the base to [n, 7]; a free one is at rest afterwards."""
        if self._is_free:
            self._backend.write("qpos", slice(self._qpos, self._qpos + 7), row, env_ids)
            self._backend.write("qvel", slice(self._qvel, self._qvel + 6), torch.zeros_like(row[:, :6]), env_ids)
            return
        self._row = self._row.index_copy(0, env_ids, row)
        self._shift = pose_from_row(self._row) @ self._from_initial
        pos = row[:, None, :3] + self._pos @ matrix_from_quat(row[:, 3:]).transpose(1, 2)
        self._backend.write_model("body_pos", self._roots, pos, env_ids)
        self._backend.write_model("body_quat", self._roots, quat_mul(row[:, None, 3:], self._quat), env_ids)


def _conjugate(quat: Tensor) -> Tensor:
    return quat * torch.tensor([1.0, -1.0, -1.0, -1.0], device=quat.device)
