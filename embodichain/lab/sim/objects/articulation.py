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
from embodichain.lab.sim.objects.kept import Kept

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
        qf_limits: [N, J] largest drive effort, Nm or N (infinite where there is none).
        default_qpos: [N, J] initial positions.
    """

    qpos_limits: Tensor
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
        device = backend.device
        self._stiffness = torch.tensor(model.actuator_gainprm[self._ctrl_adr, 0], dtype=torch.float32, device=device)
        self._damping = torch.tensor(-model.actuator_biasprm[self._ctrl_adr, 2], dtype=torch.float32, device=device)
        self._highest_effort = self.body_data.qf_limits[0]
        self._lowest_effort = -self._highest_effort
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
        """Return the drives' target positions [N, J]."""
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

    def _compute_qf(self) -> Tensor:
        error = self.get_qpos_target() - self.get_qpos()
        effort = torch.addcmul(self._stiffness * error, self._damping, self.get_qvel(), value=-1.0)
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
            qf_limits=torch.tensor(efforts, dtype=torch.float32, device=device).expand(n, -1),
            default_qpos=default.expand(n, -1),
        )
