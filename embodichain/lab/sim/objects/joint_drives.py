"""The drives of an articulation's joints. Shapes: N environments, n in ``env_ids`` (None: all), J joints.

A drive with stiffness kp and damping kd pushes with kp (target - q) - kd qd towards a position, with kd (target - qd)
towards a velocity, or with an effort that is its target, always within its effort limit.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from embodichain.lab.sim.backend import Backend
from embodichain.utils.device import constant

DriveMode = Literal["position", "velocity", "effort"]
"""The unit of a drive's target."""


class JointDrives:
    """Gains and modes of the drives; a reset does not change them."""

    state_names = ("_gains", "_strength", "_gain", "_pull", "_drag")

    def __init__(
        self, backend: Backend, actuators: Mapping[int, int], dof_addresses: Sequence[int], default_qpos: Tensor
    ) -> None:
        """Read the drives from the compiled model, where all of them are for positions.

        Args:
            actuators: actuator of each driven joint, by the joint's index.
            dof_addresses: addresses of all J joints.
            default_qpos: [J] initial positions.
        """
        self._backend = backend
        self._actuators = dict(actuators)
        self._joints = list(actuators)
        self._places = _as_slice(list(actuators.values()))
        self._dofs = list(dof_addresses)
        self._numbers = {joint: int(backend.model.dof_jntid[dof]) for joint, dof in enumerate(self._dofs)}
        self._default_qpos = default_qpos
        self._modes: list[DriveMode] = ["position"] * len(self._dofs)
        stiffness, damping = self._of_joints("actuator_gainprm", 0), -self._of_joints("actuator_biasprm", 2)
        self._default_gains = torch.stack((stiffness, damping), dim=1)
        self._gains = self._default_gains  # [1 or N, 2, J]
        self._strength = torch.ones_like(stiffness)  # [1 or N, J] factor of the gains and the highest effort
        # force = gain * target - pull * q - drag * qd; [1 or N, J]
        self._gain, self._pull, self._drag = self._coefficients(self._gains)

    def set_mode(self, mode: DriveMode, joint_ids: Sequence[int]) -> None:
        """Set the mode of some joints' drives, in all environments.

        Velocity and effort targets are 0 now and after each reset; position targets are the initial positions.
        """
        for joint in joint_ids:
            self._modes[joint] = mode
        driven = [joint for joint in joint_ids if joint in self._actuators]
        targets = self._default_qpos[driven]
        if mode != "position":
            targets = torch.zeros_like(targets)
        self._backend.write_initial("ctrl", self._columns(driven), targets)
        self._backend.write("ctrl", self._columns(driven), targets)
        self._write(None)

    def by_effort(self) -> set[str]:
        """Return the names of the drives that push with given efforts, whatever their stiffness."""
        actuators = [actuator for joint, actuator in self._actuators.items() if self._modes[joint] == "effort"]
        return {self._backend.model.actuator(actuator).name for actuator in actuators}

    def set_targets(self, targets: Tensor, joint_ids: Sequence[int]) -> None:
        """Set the drives' targets [N, J] of joints that have one, in the unit of their mode."""
        self._backend.write("ctrl", self._columns(joint_ids), targets)

    def read(self) -> dict[str, Tensor]:
        """Return the present properties, [N, J] each; 0 for joints without a drive.

        ``stiffness`` (N/m or Nm/rad), ``damping`` (N s/m or Nm s/rad), ``friction`` (dry, N or Nm),
        ``armature`` (inertia of the motor, kg or kg m^2).
        """
        n, dofs = self._backend.num_envs, constant(tuple(self._dofs), self._backend.device)
        return {
            "stiffness": (self._gains[:, 0] * self._strength).expand(n, -1),
            "damping": (self._gains[:, 1] * self._strength).expand(n, -1),
            "friction": self._backend.read_model("dof_frictionloss")[:, dofs].float(),
            "armature": self._backend.read_model("dof_armature")[:, dofs].float(),
        }

    @property
    def configured_gains(self) -> tuple[Tensor, Tensor]:
        """Stiffness (N/m or Nm/rad) and damping (N s/m or Nm s/rad) before any :meth:`scale`, [J] each."""
        stiffness, damping = self._default_gains[0]
        return stiffness, damping

    def scale(self, stiffness: Tensor, damping: Tensor, joint_ids: Sequence[int], env_ids: Tensor) -> None:
        """Set the gains to factors of the configured ones.

        Args:
            stiffness: [n, J] factors.
            damping: [n, J] factors.
        """
        factors = torch.stack((stiffness, damping), dim=1)
        self._gains = self._changed(self._gains, self._default_gains, factors, joint_ids, env_ids)
        self._write(env_ids)

    def set_strength(self, strength: Tensor, joint_ids: Sequence[int], env_ids: Tensor) -> None:
        """Set factors of the gains and of the effort limits: :meth:`scale` sets others, of the gains alone.

        Args:
            strength: [n, J] factors, above 0.
        """
        ones = torch.ones_like(self._default_gains[:, 0])
        self._strength = self._changed(self._strength, ones, strength, joint_ids, env_ids)
        self._write(env_ids)
        model, rows = self._backend.model, self._strength[env_ids]
        for name, numbers, is_limited in (
            ("jnt_actfrcrange", self._numbers, model.jnt_actfrclimited),
            ("actuator_forcerange", self._actuators, model.actuator_forcelimited),
        ):
            limited = {joint: number for joint, number in numbers.items() if is_limited[number]}
            if limited:
                places, joints = _as_slice(list(limited.values())), list(limited)
                bounds = getattr(model, name)[list(limited.values())].tolist()
                ranges = constant(tuple(map(tuple, bounds)), rows.device, torch.float32)
                factors = rows[:, constant(tuple(joints), rows.device), None]
                self._backend.write_model(name, places, factors * ranges, env_ids)

    @property
    def strength(self) -> Tensor:
        """Factors of the effort limits, [1 or N, J]."""
        return self._strength

    def _changed(
        self, now: Tensor, default: Tensor, factors: Tensor, joint_ids: Sequence[int], env_ids: Tensor
    ) -> Tensor:
        """Return values [N, ..., J] of which some joints' in environments [n] are factors of their defaults."""
        now = now.expand(self._backend.num_envs, *now.shape[1:])
        if len(joint_ids) == len(self._dofs):
            rows = default * factors
        else:
            at = constant(tuple(joint_ids), now.device)
            rows = now[env_ids]
            rows[..., at] = default[..., at] * factors
        # A new tensor, so that tensors read before do not change.
        return now.index_copy(0, env_ids, rows)

    def efforts(self, targets: Tensor, qpos: Tensor, qvel: Tensor) -> Tensor:
        """Return the drives' efforts before their limits, [N, J]; targets, positions and velocities [N, J]."""
        if self._gain is self._pull:
            towards = self._gain * (targets - qpos)
        else:
            towards = torch.addcmul(self._gain * targets, self._pull, qpos, value=-1.0)
        return torch.addcmul(towards, self._drag, qvel, value=-1.0)

    def _write(self, env_ids: Tensor | None) -> None:
        """Write gains and modes into the engine's actuators of environments [n]."""
        gains = self._gains * self._strength[:, None]
        self._gain, self._pull, self._drag = self._coefficients(gains)
        rows = gains if env_ids is None else gains.expand(self._backend.num_envs, -1, -1)[env_ids]
        gain, pull, drag = self._coefficients(rows)
        if len(self._joints) < len(self._dofs):
            driven = constant(tuple(self._joints), gain.device)
            gain, pull, drag = gain[:, driven], pull[:, driven], drag[:, driven]
        write = self._backend.write_model
        write("actuator_gainprm", (self._places, 0), gain, env_ids)
        write("actuator_biasprm", (self._places, slice(1, 3)), -torch.stack((pull, drag), 2), env_ids)

    def _coefficients(self, gains: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return gain, pull and drag, [n, J] each, of gains [n, 2, J] in the present modes."""
        stiffness, damping = gains.unbind(1)
        if all(mode == "position" for mode in self._modes):
            return stiffness, stiffness, damping
        position, effort = (
            constant(tuple(mode == kind for mode in self._modes), gains.device, torch.bool)
            for kind in ("position", "effort")
        )
        gain = torch.where(position, stiffness, torch.where(effort, 1.0, damping))
        return gain, torch.where(position, stiffness, 0.0), torch.where(effort, 0.0, damping)

    def _columns(self, joint_ids: Sequence[int]) -> Tensor:
        return constant(tuple(self._actuators[joint] for joint in joint_ids), self._backend.device)

    def _of_joints(self, name: str, column: int) -> Tensor:
        """Return a parameter of each joint's actuator, 0 where there is none, [1, J]."""
        values = np.zeros((1, len(self._dofs)))
        values[0, self._joints] = getattr(self._backend.model, name)[list(self._actuators.values()), column]
        return torch.tensor(values, dtype=torch.float32, device=self._backend.device)


def _as_slice(numbers: list[int]) -> list[int] | slice:
    """Return consecutive numbers as a slice, which is faster to write than a list."""
    first, count = numbers[0] if numbers else 0, len(numbers)
    return slice(first, first + count) if numbers == list(range(first, first + count)) else numbers
