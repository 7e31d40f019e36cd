"""Bodies held together by joints. Shapes: N environments, n the environments of one call, J joints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
import torch
from torch import Tensor

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.backend.base import Columns
from embodichain.lab.sim.cfg import ArticulationCfg
from embodichain.lab.sim.math import pose_from_row
from embodichain.lab.sim.objects.base_pose import BasePose
from embodichain.lab.sim.objects.joint_drives import JointDrives
from embodichain.lab.sim.objects.kept import Kept
from embodichain.lab.sim.scene import match_names

__all__ = ["Articulation", "BodyData", "columns"]


def columns(indices: Sequence[int], device: torch.device) -> Columns:
    """Return a slice where the indices follow each other, so that reading makes a view, else a tensor of them."""
    first, last = indices[0], indices[-1]
    if list(indices) == list(range(first, last + 1)):
        return slice(first, last + 1)
    return torch.tensor(indices, device=device)


@dataclass(frozen=True)
class BodyData:
    """What is fixed about an articulation's joints.

    Attributes:
        qpos_limits: [N, J, 2] lower and upper position limits, rad or m (infinite where there is none).
        qvel_limits: [N, J] largest velocity of the config (infinite where there is none), rad/s or m/s.
        qf_limits: [N, J] largest drive effort, Nm or N (infinite where there is none).
        default_qpos: [N, J] initial positions.
    """

    qpos_limits: Tensor
    qvel_limits: Tensor
    qf_limits: Tensor
    default_qpos: Tensor


class Articulation:
    """The joints of one articulation, of every environment."""

    def __init__(self, cfg: ArticulationCfg, backend: Backend, joint_names: list[str]) -> None:
        self.cfg = cfg
        self.uid = cfg.uid
        self.joint_names = joint_names
        self.dof = len(joint_names)
        self._backend = backend
        model = backend.model
        self._joint_ids = [int(model.joint(f"{cfg.uid}/{name}").id) for name in joint_names]
        self._qpos_adr = [int(model.jnt_qposadr[j]) for j in self._joint_ids]
        self._qvel_adr = [int(model.jnt_dofadr[j]) for j in self._joint_ids]
        self._ctrl_adr = [int(model.actuator(f"{cfg.uid}/{name}").id) for name in joint_names]
        self.body_data = self._read_body_data(model)
        actuators = dict(enumerate(self._ctrl_adr))
        self.drives: JointDrives = JointDrives(backend, actuators, self._qvel_adr, self.body_data.default_qpos[0])
        """The joints' drives."""
        self._highest_effort = self.body_data.qf_limits[0]
        self._lowest_effort = -self._highest_effort
        self._base = BasePose(cfg, backend)
        self._kept = Kept(backend)
        self._column_cache: dict[tuple[int, ...], Columns] = {}

    def get_joint_ids(self, name: str | None = None) -> list[int]:
        """Return the indices of all joints; a robot also knows its control parts by name."""
        if name is not None:
            raise KeyError(f"articulation '{self.uid}' has no control parts, got '{name}'")
        return list(range(self.dof))

    def get_qpos(self, name: str | None = None) -> Tensor:
        """Return joint positions [N, J] (rad or m), of one control part when it is named."""
        return self._kept.get(
            ("qpos", name), lambda: self._backend.qpos[:, self._columns(self._qpos_adr, self.get_joint_ids(name))]
        )

    def get_qvel(self, name: str | None = None) -> Tensor:
        """Return joint velocities [N, J] (rad/s or m/s)."""
        return self._kept.get(
            ("qvel", name), lambda: self._backend.qvel[:, self._columns(self._qvel_adr, self.get_joint_ids(name))]
        )

    def get_qf(self, name: str | None = None) -> Tensor:
        """Return the drives' efforts on the joints at the current state and targets [N, J] (Nm or N).

        The drive's formula (see :class:`~embodichain.lab.sim.cfg.JointDrivePropertiesCfg`), which is cheaper than
        asking the engine to derive it and equal to what it would say.
        """
        qf = self._kept.get("qf", self._compute_qf)
        return qf if name is None else qf[:, self.get_joint_ids(name)]

    def get_qpos_target(self, name: str | None = None) -> Tensor:
        """Return the drives' targets [N, J]: positions, unless they are in another mode."""
        return self._backend.ctrl[:, self._columns(self._ctrl_adr, self.get_joint_ids(name))]

    def set_qpos(
        self,
        qpos: Tensor,
        joint_ids: Sequence[int] | None = None,
        env_ids: Tensor | None = None,
        target: bool = True,
        name: str | None = None,
    ) -> None:
        """Set the drives' target positions, or the positions themselves.

        Args:
            qpos: [n, J] rad or m.
            joint_ids: the joints, or None for those of ``name``.
            env_ids: [n], or None for all.
            target: set the drives' targets; otherwise move the joints there at once, targets included.
            name: a control part, or None for all joints.
        """
        ids = self.get_joint_ids(name) if joint_ids is None else joint_ids
        self._backend.write("ctrl", self._columns(self._ctrl_adr, ids), qpos, env_ids)
        if not target:
            self._backend.write("qpos", self._columns(self._qpos_adr, ids), qpos, env_ids)

    def set_qvel(
        self,
        qvel: Tensor,
        joint_ids: Sequence[int] | None = None,
        env_ids: Tensor | None = None,
        name: str | None = None,
    ) -> None:
        """Set joint velocities [n, J] (rad/s or m/s); arguments as in :meth:`set_qpos`."""
        ids = self.get_joint_ids(name) if joint_ids is None else joint_ids
        self._backend.write("qvel", self._columns(self._qvel_adr, ids), qvel, env_ids)

    def get_user_ids(self) -> Tensor:
        """Return the links' numbers in the scene, [N, links] int32."""
        ids = torch.tensor(self._base.bodies, dtype=torch.int32, device=self._backend.device)
        return ids.expand(self._backend.num_envs, -1)

    def get_local_pose(self, to_matrix: bool = False) -> Tensor:
        """Return the pose of the base in the environment's frame, [N, 7] (position, quaternion wxyz) or [N, 4, 4]."""
        row = self._base.get()
        return pose_from_row(row) if to_matrix else row

    @property
    def initial_pose(self) -> Tensor:
        """The configured pose of the base, [7]: position m, quaternion wxyz."""
        return self._base.initial

    def set_local_pose(self, pose: Tensor, env_ids: Tensor) -> None:
        """Move the base of environments [n] to [n, 7] (position, quaternion wxyz); the joints stay as they are."""
        self._base.set(pose, env_ids)

    def clear_dynamics(self, env_ids: Tensor) -> None:
        """Bring the joints of environments [n] to rest."""
        self.set_qvel(torch.zeros(len(env_ids), self.dof, device=env_ids.device), env_ids=env_ids)

    def get_state(self, env_ids: Tensor) -> Tensor:
        """Return everything about the motion in environments [n]: base pose, positions, velocities and targets."""
        parts = (self.get_local_pose(), self.get_qpos(), self.get_qvel(), self.get_qpos_target())
        return torch.cat(parts, dim=1)[env_ids]

    def set_state(self, state: Tensor, env_ids: Tensor) -> None:
        """Set what :meth:`get_state` returned; a free base is at rest afterwards."""
        base, qpos, qvel, targets = state.split((7, self.dof, self.dof, self.dof), dim=1)
        self.set_local_pose(base, env_ids)
        self.set_qpos(qpos, env_ids=env_ids, target=False)
        self.set_qvel(qvel, env_ids=env_ids)
        self.set_qpos(targets, env_ids=env_ids)

    def _compute_qf(self) -> Tensor:
        effort = self.drives.efforts(self.get_qpos_target(), self.get_qpos(), self.get_qvel())
        return torch.clamp(effort, self._lowest_effort, self._highest_effort)

    def _columns(self, addresses: list[int], joint_ids: Sequence[int]) -> Columns:
        key = tuple(addresses[j] for j in joint_ids)
        if key not in self._column_cache:
            self._column_cache[key] = columns(key, self._backend.device)
        return self._column_cache[key]

    def _read_body_data(self, model: mujoco.MjModel) -> BodyData:
        n, device = self._backend.num_envs, self._backend.device
        inf = float("inf")
        limits = [tuple(model.jnt_range[j]) if model.jnt_limited[j] else (-inf, inf) for j in self._joint_ids]
        joint = np.where(model.jnt_actfrclimited, model.jnt_actfrcrange[:, 1], inf)[self._joint_ids]
        drive = np.where(model.actuator_forcelimited, model.actuator_forcerange[:, 1], inf)[self._ctrl_adr]
        efforts = np.minimum(joint, drive)
        default = torch.tensor(model.key_qpos[0][self._qpos_adr], dtype=torch.float32, device=device)
        return BodyData(
            qpos_limits=torch.tensor(limits, dtype=torch.float32, device=device).expand(n, -1, -1),
            qvel_limits=torch.tensor(self._velocity_limits(), dtype=torch.float32, device=device).expand(n, -1),
            qf_limits=torch.tensor(efforts, dtype=torch.float32, device=device).expand(n, -1),
            default_qpos=default.expand(n, -1),
        )

    def _velocity_limits(self) -> list[float]:
        limit = self.cfg.drive_pros.max_velocity
        if not isinstance(limit, dict):
            return [float("inf") if limit is None else limit] * self.dof
        limits = dict.fromkeys(self.joint_names, float("inf"))
        for pattern, number in limit.items():
            matches = match_names([pattern], self.joint_names, f"{self.uid}.drive_pros.max_velocity")
            limits |= dict.fromkeys(matches, number)
        return list(limits.values())
