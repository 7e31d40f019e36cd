"""Pose and velocity of an articulation's base. Shapes: N environments, n in ``env_ids``, R root bodies."""

from __future__ import annotations

import math

import mujoco
import torch
from torch import Tensor

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.cfg import ArticulationCfg
from embodichain.lab.sim.math import matrix_from_quat, pose_from_row, quat_from_euler, quat_mul
from embodichain.lab.sim.objects.state_cache import StateCache, cached_per_state

_FREE = int(mujoco.mjtJoint.mjJNT_FREE)


class BasePose:
    """The pose of an articulation's base: in the state if it is free, else in each environment's model.

    Velocities are of the base link's origin, in the base's frame; a fixed base has velocity 0.
    """

    state_names = ("_row", "_shift")

    def __init__(self, cfg: ArticulationCfg, backend: Backend) -> None:
        self._backend = backend
        model, device = backend.model, backend.device
        self.bodies: list[int] = [b for b in range(1, model.nbody) if model.body(b).name.startswith(f"{cfg.uid}/")]
        """All bodies of the articulation in the model."""
        self._roots = [b for b in self.bodies if model.body_parentid[b] == 0]
        joint = int(model.body_jntadr[self._roots[0]])
        self._is_free = joint >= 0 and model.jnt_type[joint] == _FREE
        self._qpos = self._qvel = 0  # its places in the state
        angles = torch.tensor([math.radians(angle) for angle in cfg.init_rot], device=device)
        self.initial: Tensor = torch.cat((torch.tensor(cfg.init_pos, device=device), quat_from_euler(angles)))
        """The initial pose, [7]: position m, quaternion wxyz."""
        if self._is_free:  # the scene's place, which may be the file's own
            self._qpos, self._qvel = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
            self.initial = torch.as_tensor(model.key_qpos[0, self._qpos : self._qpos + 7]).float().to(device)
        self.state_cache: StateCache = StateCache(backend)
        """Cache of values computed from the present state."""
        self._from_initial = torch.linalg.inv(pose_from_row(self.initial[None]))
        self._row = self.initial.repeat(backend.num_envs, 1)
        self._shift: Tensor | None = None
        # [R, 3] and [R, 4], bodies in the base's frame. A base link without a joint may have become the world's.
        turn = self.initial[3:] * torch.tensor([1.0, -1.0, -1.0, -1.0], device=device)  # its inverse
        pos = torch.tensor(model.body_pos[self._roots], dtype=torch.float32, device=device) - self.initial[:3]
        self._pos = pos @ matrix_from_quat(turn).T
        self._quat = quat_mul(turn, torch.tensor(model.body_quat[self._roots], dtype=torch.float32, device=device))

    def get(self) -> Tensor:
        """Return position and quaternion wxyz in the environment's frame, [N, 7]."""
        return self._backend.qpos[:, self._qpos : self._qpos + 7] if self._is_free else self._row

    @property
    def shift(self) -> Tensor | None:
        """The transform from the configured base to the present one, [N, 4, 4]; None while no fixed base was moved."""
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

    @cached_per_state
    def rotation(self) -> Tensor:
        """Return the base's rotation matrix in the environment's frame, [N, 3, 3]."""
        return matrix_from_quat(self.get()[:, 3:])

    @cached_per_state
    def linear_velocity(self) -> Tensor:
        """Return the linear velocity in the base's frame, [N, 3], m/s."""
        # The engine has a free joint's linear velocity in the world's frame and its angular one in the body's.
        return self._to_base(self.velocity()[:, :3])

    def angular_velocity(self) -> Tensor:
        """Return the angular velocity in the base's frame, [N, 3], rad/s."""
        return self.velocity()[:, 3:]

    @cached_per_state
    def heading(self) -> Tensor:
        """Return the direction of the base's x axis in the horizontal plane, [N], rad."""
        forward = self.rotation()[:, :2, 0]
        return torch.atan2(forward[:, 1], forward[:, 0])

    def projected_gravity(self) -> Tensor:
        """Return the unit vector downwards in the base's frame, [N, 3]; (0, 0, -1) while it is level."""
        return -self.rotation()[:, 2]

    def velocity(self) -> Tensor:
        """Return linear (environment's frame, m/s) and angular velocity (base's frame, rad/s), [N, 6]."""
        if self._is_free:
            return self._backend.qvel[:, self._qvel : self._qvel + 6]
        return torch.zeros(self._backend.num_envs, 6, device=self._backend.device)

    def _to_base(self, vector: Tensor) -> Tensor:
        """Return vectors [N, 3] of the environment's frame in the base's."""
        return torch.bmm(vector[:, None], self.rotation())[:, 0]

    def set_velocity(self, velocity: Tensor, env_ids: Tensor) -> None:
        """Set linear (environment's frame, m/s) and angular velocity (base's frame, rad/s) of a free base, [n, 6]."""
        self._backend.write("qvel", slice(self._qvel, self._qvel + 6), velocity, env_ids)

    @property
    def is_free(self) -> bool:
        """Whether the base moves, rather than being fixed to the world."""
        return self._is_free
