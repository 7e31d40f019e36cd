"""A robot in plain MuJoCo: what its sensors measure, and commands to its drives. J joints that act."""

import copy
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np


class PlainRobot:
    """The robot of a compiled model, driven by ``mj_step`` alone.

    Args:
        model: is copied.
        uid: of the robot, the prefix of its names in the model.
        spec: of an exported policy.
        physics_dt: duration of a physics step, s; None: the model's.

    Attributes:
        model, data: of MuJoCo.
    """

    def __init__(self, model: Any, uid: str, spec: Mapping[str, Any], physics_dt: float | None = None) -> None:
        self.model = copy.copy(model)
        self.model.opt.timestep = physics_dt or model.opt.timestep
        self.data = mujoco.MjData(self.model)
        self._substeps = round(spec["control_period_s"] / self.model.opt.timestep)
        names = [drive["name"] for drive in spec["drives"]]
        joints = [self.model.joint(f"{uid}/{name}") for name in names]
        self._qpos = [int(joint.qposadr[0]) for joint in joints]
        self._qvel = [int(joint.dofadr[0]) for joint in joints]
        actuator_of = {int(self.model.actuator_trnid[a, 0]): a for a in range(self.model.nu)}
        commanded = [self.model.joint(f"{uid}/{part['name']}").id for part in spec["command"]]
        self._actuators = [actuator_of[joint] for joint in commanded]
        free = next(j for j in range(self.model.njnt) if self.model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE)
        self._base_qpos, self._base_qvel = int(self.model.jnt_qposadr[free]), int(self.model.jnt_dofadr[free])

    def measure(self) -> dict[str, np.ndarray]:
        """Return the raw measurements of the present state."""
        pos, vel = self.data.qpos, self.data.qvel
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, pos[self._base_qpos + 3 : self._base_qpos + 7])
        world_to_base = rotation.reshape(3, 3).T
        return {
            "base_lin_vel": world_to_base @ vel[self._base_qvel : self._base_qvel + 3],
            "base_ang_vel": vel[self._base_qvel + 3 : self._base_qvel + 6].copy(),
            "projected_gravity": -world_to_base[:, 2],
            "joint_pos": pos[self._qpos],
            "joint_vel": vel[self._qvel],
        }

    def apply(self, command: np.ndarray) -> None:
        """Set the drives' targets [J], and let a control step pass."""
        self.data.ctrl[self._actuators] = command
        for _ in range(self._substeps):
            mujoco.mj_step(self.model, self.data)
