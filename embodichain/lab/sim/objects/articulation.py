"""Bodies held together by joints. Shapes: N environments, n the environments of one call, J joints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np
import torch
from torch import Tensor

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.backend.base import Columns
from embodichain.lab.sim.cfg import ArticulationCfg
from embodichain.lab.sim.math import pose_from_row
from embodichain.lab.sim.objects.base_pose import BasePose
from embodichain.lab.sim.objects.kept import Kept
from embodichain.lab.sim.scene import match_names

__all__ = ["Articulation", "BodyData", "DriveMode", "JointDrive", "columns"]

DriveMode = Literal["position", "velocity", "effort"]
"""What a drive's target is. With stiffness kp and damping kd its force is kp (target - q) - kd qd for a position, kd
(target - qd) for a velocity, and the target itself for an effort, within the effort limit."""


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


@dataclass(frozen=True)
class JointDrive:
    """The joints' drives, [N, J] each.

    Attributes:
        stiffness: N/m or Nm/rad.
        damping: N s/m or Nm s/rad.
        max_effort: N or Nm (infinite where there is no limit).
        max_velocity: m/s or rad/s of the config, for observations: MuJoCo has no such limit (infinite where none).
        friction: dry friction, N or Nm.
        armature: inertia of the motor, kg or kg m^2.
    """

    stiffness: Tensor
    damping: Tensor
    max_effort: Tensor
    max_velocity: Tensor
    friction: Tensor
    armature: Tensor


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
        # Of the drives as they are; `_gain` is the factor of the target, `_pull` that of the position. [1 or N, J]
        self._stiffness = self._gain = self._pull = self._of_drives(model.actuator_gainprm[:, 0])
        self._damping = self._drag = self._of_drives(-model.actuator_biasprm[:, 2])
        self._default_stiffness, self._default_damping = self._stiffness, self._damping
        self._modes: list[DriveMode] = ["position"] * self.dof
        self._highest_effort = self.body_data.qf_limits[0]
        self._lowest_effort = -self._highest_effort
        self._body_ids = [b for b in range(1, model.nbody) if model.body(b).name.startswith(f"{cfg.uid}/")]
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
        """Return the drives' targets [N, J]: positions, or what :meth:`set_drive_mode` made of them."""
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

    def set_qvel_target(self, qvel: Tensor, joint_ids: Sequence[int]) -> None:
        """Set target velocities [N, J] (rad/s or m/s) of drives in mode ``velocity``."""
        self._backend.write("ctrl", self._columns(self._ctrl_adr, joint_ids), qvel)

    def set_qf(self, qf: Tensor, joint_ids: Sequence[int]) -> None:
        """Set efforts [N, J] (Nm or N) of drives in mode ``effort``."""
        self._backend.write("ctrl", self._columns(self._ctrl_adr, joint_ids), qf)

    def set_drive_mode(self, mode: DriveMode, joint_ids: Sequence[int]) -> None:
        """Choose what the targets of some joints' drives mean, in all environments.

        Targets of velocities and efforts are 0 after a reset, those of positions where the joints are then.
        """
        for joint in joint_ids:
            self._modes[joint] = mode
        at = self._columns(self._ctrl_adr, joint_ids)
        target = torch.zeros(len(joint_ids), device=self._backend.device)
        if mode == "position":
            target = self.body_data.default_qpos[0, list(joint_ids)]
        self._backend.write_initial("ctrl", at, target)
        self._backend.write("ctrl", at, self.get_qpos()[:, list(joint_ids)] if mode == "position" else target)
        self._write_drives(None)

    def get_joint_drive(self) -> JointDrive:
        """Return the joints' drives as they are in each environment."""
        n = self._backend.num_envs
        dofs = list(self._qvel_adr)
        return JointDrive(
            stiffness=self._stiffness.expand(n, -1),
            damping=self._damping.expand(n, -1),
            max_effort=self.body_data.qf_limits,
            max_velocity=self.body_data.qvel_limits,
            friction=self._backend.read_model("dof_frictionloss")[:, dofs].float(),
            armature=self._backend.read_model("dof_armature")[:, dofs].float(),
        )

    def scale_joint_drive(
        self,
        stiffness: Tensor,
        damping: Tensor,
        joint_ids: Sequence[int],
        env_ids: Tensor | None = None,
    ) -> None:
        """Set the drives' gains to factors of the configured ones.

        Args:
            stiffness: [n, J] factors.
            damping: [n, J] factors.
            joint_ids: the joints.
            env_ids: [n], or None for all.
        """
        rows = slice(None) if env_ids is None else env_ids[:, None]
        at = list(joint_ids)
        n = self._backend.num_envs
        # New tensors, so that what was read before stays what it was.
        self._stiffness, self._damping = (gains.expand(n, -1).clone() for gains in (self._stiffness, self._damping))
        self._stiffness[rows, at] = self._default_stiffness[0, at] * stiffness
        self._damping[rows, at] = self._default_damping[0, at] * damping
        self._write_drives(env_ids)

    @property
    def link_names(self) -> list[str]:
        """The names of the bodies, as the maker's file has them."""
        model = self._backend.model
        return [model.body(body).name.removeprefix(f"{self.uid}/") for body in self._body_ids]

    def get_user_ids(self) -> Tensor:
        """Return the links' numbers in the scene, [N, links] int32."""
        ids = torch.tensor(self._body_ids, dtype=torch.int32, device=self._backend.device)
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

    def _write_drives(self, env_ids: Tensor | None) -> None:
        """Bring the engine's actuators in line with gains and modes: force = gain target - pull q - damping qd."""
        self._gain, self._pull, self._drag = self._stiffness, self._stiffness, self._damping
        if any(mode != "position" for mode in self._modes):
            position = torch.tensor([mode == "position" for mode in self._modes], device=self._gain.device)
            effort = torch.tensor([mode == "effort" for mode in self._modes], device=self._gain.device)
            self._pull = torch.where(position, self._stiffness, 0.0)
            self._drag = torch.where(effort, 0.0, self._damping)
            self._gain = torch.where(position, self._stiffness, torch.where(effort, 1.0, self._damping))
        rows = slice(None) if env_ids is None or len(self._gain) == 1 else env_ids
        gain, bias = self._gain[rows], torch.stack((-self._pull[rows], -self._drag[rows]), dim=2)
        self._backend.write_model("actuator_gainprm", (self._ctrl_adr, 0), gain, env_ids)
        self._backend.write_model("actuator_biasprm", (self._ctrl_adr, slice(1, 3)), bias, env_ids)

    def _compute_qf(self) -> Tensor:
        target = self.get_qpos_target()
        if self._gain is self._pull:
            effort = self._gain * (target - self.get_qpos())
        else:
            effort = torch.addcmul(self._gain * target, self._pull, self.get_qpos(), value=-1.0)
        effort = torch.addcmul(effort, self._drag, self.get_qvel(), value=-1.0)
        return torch.clamp(effort, self._lowest_effort, self._highest_effort)

    def _of_drives(self, values: np.ndarray) -> Tensor:
        """Return [1, J] of an actuator field [nu]."""
        return torch.tensor(values[self._ctrl_adr], dtype=torch.float32, device=self._backend.device)[None]

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
            limits |= dict.fromkeys(
                match_names([pattern], self.joint_names, f"{self.uid}.drive_pros.max_velocity"), number
            )
        return list(limits.values())
