"""Bodies held by joints, and their drives. Shapes: N environments, n in ``env_ids`` (None: all), J joints, R roots."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np
import torch
from numpy.polynomial.polynomial import polyder
from torch import Tensor

from embodichain.lab.sim.backend.base import Backend, Columns, StateCache, cached_per_state
from embodichain.lab.sim.cfg import ArticulationCfg
from embodichain.lab.sim.kinematics import SerialChain, bodies_between
from embodichain.lab.sim.math import (
    matrix_from_quat,
    pose_from_pos_quat,
    pose_from_row,
    quat_from_euler,
    quat_mul,
    row_from_pose,
)
from embodichain.lab.sim.model.drives import driven_joints, mimics, per_joint
from embodichain.lab.sim.objects.body_physics import LinkPhysics
from embodichain.utils import ConfigError, unknown_name
from embodichain.utils.device import constant

DriveMode = Literal["position", "velocity", "effort"]
"""The unit of a drive's target."""
_FREE = int(mujoco.mjtJoint.mjJNT_FREE)


def columns(indices: Sequence[int], device: torch.device) -> Columns:
    """Return a slice where the indices follow each other, so that reading makes a view, else a tensor of them."""
    found = _as_slice(list(indices))
    return found if isinstance(found, slice) else constant(tuple(found), device)


def body_pose(backend: Backend, body: int) -> Tensor:
    """Return the world pose of a body as the engine has it, [N, 4, 4]; slower than a chain of joints."""
    return pose_from_pos_quat(backend.read("xpos")[:, body], backend.read("xquat")[:, body])


@dataclass(frozen=True)
class BodyData:
    """Constants of an articulation's joints.

    Attributes:
        qpos_limits: [N, J, 2] lower and upper position limits, rad or m (infinite where there is none).
        qvel_limits: [N, J] largest velocity of the config (infinite where there is none), rad/s or m/s.
        qf_limits: [N, J] largest drive effort, Nm or N (infinite where there is no limit, 0 where there is no drive).
        default_qpos: [N, J] initial positions.
    """

    qpos_limits: Tensor
    qvel_limits: Tensor
    qf_limits: Tensor
    default_qpos: Tensor


class Articulation:
    """The joints and links of one articulation, of every environment.

    Attributes:
        joint_names: names of all J joints, in joint order.
        driven_ids: indices of joints with a drive; the others mimic one, or are left free by the model.
        link_names: names of all bodies.
    """

    def __init__(
        self, cfg: ArticulationCfg, backend: Backend, joints: Mapping[str, str], links: Mapping[str, str]
    ) -> None:
        """Read the articulation from the compiled model; joints, in order, and links: name -> name in the model."""
        self.cfg = cfg
        self.uid = cfg.uid
        self.joint_names = list(joints)
        self.link_names = list(links)
        self.dof = len(joints)
        self._part_ids: dict[str, list[int]] = {}
        self._backend = backend
        model = backend.model
        self._links = {name: int(model.body(full).id) for name, full in links.items()}
        self._joint_ids = [int(model.joint(full).id) for full in joints.values()]
        self._qpos_adr = [int(model.jnt_qposadr[j]) for j in self._joint_ids]
        self._qvel_adr = [int(model.jnt_dofadr[j]) for j in self._joint_ids]
        actuators = [mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_ACTUATOR, full) for full in joints.values()]
        self.driven_ids = [j for j, actuator in enumerate(actuators) if actuator >= 0]
        self._ctrl_adr = {j: actuators[j] for j in self.driven_ids}
        # addresses and zero positions of follower and leader; coefficients of the polynomial and of its derivative
        self._mimics: list[tuple[dict[str, list[int]], list[float], dict[str, list[float]]]] = []
        for *joints_of, coefficients in mimics(model):
            if joints_of[0] in self._joint_ids:
                places = {"qpos": model.jnt_qposadr[joints_of].tolist(), "qvel": model.jnt_dofadr[joints_of].tolist()}
                lines = {"qpos": coefficients.tolist(), "qvel": polyder(coefficients).tolist()}
                self._mimics.append((places, model.qpos0[places["qpos"]].tolist(), lines))
        self.effort_limits: Tensor = self._read_effort_limits(model)
        """Lowest and highest effort of the drives, [2, J], Nm or N; infinite without a limit, 0 without a drive."""
        self.body_data = self._read_body_data(model)
        self.drives: JointDrives = JointDrives(backend, self._ctrl_adr, self._qvel_adr, self.body_data.default_qpos[0])
        self.link_physics: LinkPhysics = LinkPhysics(backend, self._links)
        """Masses, centres of mass and friction of its links."""
        self.base: BasePose = BasePose(cfg, backend)
        self.state_cache = StateCache(backend)
        self._column_cache: dict[tuple[int, ...], Columns] = {}
        self._link_chains: dict[str, SerialChain] = {}

    def get_joint_ids(self, name: str | None = None) -> list[int]:
        """Return the indices of all joints, or of a robot's control part."""
        if name is None:
            return list(range(self.dof))
        if name not in self._part_ids:
            raise KeyError(f"'{self.uid}': {unknown_name('control part', name, self._part_ids)}")
        return self._part_ids[name]

    @cached_per_state
    def get_qpos(self, name: str | None = None) -> Tensor:
        """Return joint positions [N, J] (rad or m), of one control part when it is named."""
        return self._backend.qpos[:, self._columns(self._qpos_adr, self.get_joint_ids(name))]

    @cached_per_state
    def get_qvel(self, name: str | None = None) -> Tensor:
        """Return joint velocities [N, J] (rad/s or m/s)."""
        return self._backend.qvel[:, self._columns(self._qvel_adr, self.get_joint_ids(name))]

    def get_qf(self, name: str | None = None) -> Tensor:
        """Return the drives' efforts on the joints at the current state and targets [N, J] (Nm or N).

        Computed by the drive's formula (see :class:`~embodichain.lab.sim.cfg.JointDrivePropertiesCfg`), which is faster
        than the engine's computation, with the same result; for servos at their nominal supply, without latency.
        """
        qf = self._compute_qf()
        return qf if name is None else qf[:, columns(self.get_joint_ids(name), qf.device)]

    @cached_per_state
    def _compute_qf(self) -> Tensor:
        effort = self.drives.efforts(self.get_qpos_target(), self.get_qpos(), self.get_qvel())
        low, high = self.effort_limits
        return torch.clamp(effort, low * self.drives.strength, high * self.drives.strength)

    def get_qpos_target(self, name: str | None = None) -> Tensor:
        """Return the drives' targets [N, J]: positions, unless in another mode; without a drive the position."""
        ids = self.get_joint_ids(name)
        if all(j in self._ctrl_adr for j in ids):
            return self._backend.ctrl[:, self._columns(self._ctrl_adr, ids)]
        target = self.get_qpos().clone()
        driven = columns(self.driven_ids, target.device)
        target[:, driven] = self._backend.ctrl[:, self._columns(self._ctrl_adr, self.driven_ids)]
        return target[:, columns(ids, target.device)]

    def get_link_pose(self, link_name: str, to_matrix: bool = False) -> Tensor:
        """Return a link's pose in the environment's frame: [N, 7] (x, y, z, qw, qx, qy, qz), or [N, 4, 4]."""
        pose = self._link_matrix(link_name)
        return pose if to_matrix else row_from_pose(pose)

    def set_qpos(
        self,
        qpos: Tensor,
        joint_ids: Sequence[int] | None = None,
        env_ids: Tensor | None = None,
        target: bool = True,
        name: str | None = None,
    ) -> None:
        """Set the drives' target positions, or the positions themselves.

        Joints without a drive have no target; mimic joints follow when positions are set.

        Args:
            qpos: [n, J] rad or m.
            joint_ids: the joints, or None for ``name``'s.
            target: set the drives' targets; otherwise move the joints there at once, targets of positions included.
            name: a control part, or None for all joints.
        """
        ids = self.get_joint_ids(name) if joint_ids is None else joint_ids
        moved = self._ctrl_adr if target else self.drives.to_positions()
        driven = [i for i, j in enumerate(ids) if j in moved]
        if driven:
            values = qpos if len(driven) == len(ids) else qpos[:, driven]
            self._backend.write("ctrl", self._columns(self._ctrl_adr, [ids[i] for i in driven]), values, env_ids)
        if not target:
            self._backend.write("qpos", self._columns(self._qpos_adr, ids), qpos, env_ids)
            self._follow("qpos", env_ids)

    def set_qvel(
        self,
        qvel: Tensor,
        joint_ids: Sequence[int] | None = None,
        env_ids: Tensor | None = None,
        name: str | None = None,
    ) -> None:
        """Set joint velocities [n, J] (rad/s or m/s), which mimic joints follow; arguments as in :meth:`set_qpos`."""
        ids = self.get_joint_ids(name) if joint_ids is None else joint_ids
        self._backend.write("qvel", self._columns(self._qvel_adr, ids), qvel, env_ids)
        self._follow("qvel", env_ids)

    def set_qf(
        self, qf: Tensor, joint_ids: Sequence[int] | None = None, env_ids: Tensor | None = None, name: str | None = None
    ) -> None:
        """Apply efforts [n, J] (Nm or N) on top of joint drives, until others are set or the episode ends."""
        ids = self.get_joint_ids(name) if joint_ids is None else joint_ids
        self._backend.write("qfrc_applied", self._columns(self._qvel_adr, ids), qf, env_ids)

    def _follow(self, field: Literal["qpos", "qvel"], env_ids: Tensor | None) -> None:
        """Set positions or velocities of the joints that mimic others to the polynomial of these, or its derivative."""
        for places, (zero, leader_zero), lines in self._mimics:
            moved = self._backend.qpos[:, places["qpos"][1]] - leader_zero
            value = torch.full_like(moved, zero if field == "qpos" else 0.0)
            for power, coefficient in enumerate(lines[field]):
                value += coefficient * moved**power
            if field == "qvel":
                value *= self._backend.qvel[:, places["qvel"][1]]
            rows, follower = value[:, None] if env_ids is None else value[env_ids, None], places[field][0]
            self._backend.write(field, slice(follower, follower + 1), rows, env_ids)

    def get_user_ids(self) -> Tensor:
        """Return the links' numbers in the scene, [N, links] int32."""
        ids = constant(tuple(self._links.values()), self._backend.device).int()
        return ids.expand(self._backend.num_envs, -1)

    def get_local_pose(self, to_matrix: bool = False) -> Tensor:
        """Return the pose of the base in the environment's frame, [N, 7] (position, quaternion wxyz) or [N, 4, 4]."""
        row = self.base.get()
        return pose_from_row(row) if to_matrix else row

    def set_local_pose(self, pose: Tensor, env_ids: Tensor) -> None:
        """Move the base of environments [n] to [n, 7] (position, quaternion wxyz); the joints stay as they are."""
        self.base.set(pose, env_ids)

    def clear_dynamics(self, env_ids: Tensor) -> None:
        """Bring the joints of environments [n] to rest."""
        self.set_qvel(torch.zeros(len(env_ids), self.dof, device=env_ids.device), env_ids=env_ids)

    def get_state(self, env_ids: Tensor) -> Tensor:
        """Return everything about the motion in environments [n]: of the base, positions, velocities and targets."""
        base = (self.get_local_pose(), self.base.velocity())
        parts = (*base, self.get_qpos(), self.get_qvel(), self.get_qpos_target())
        return torch.cat(parts, dim=1)[env_ids]

    def set_state(self, state: Tensor, env_ids: Tensor) -> None:
        """Set the result of :meth:`get_state`."""
        base, velocity, qpos, qvel, targets = state.split((7, 6, self.dof, self.dof, self.dof), dim=1)
        self.set_local_pose(base, env_ids)
        if self.base.is_free:
            self.base.set_velocity(velocity, env_ids)
        self.set_qpos(qpos, env_ids=env_ids, target=False)
        self.set_qvel(qvel, env_ids=env_ids)
        self.set_qpos(targets, env_ids=env_ids)

    def _read_effort_limits(self, model: mujoco.MjModel) -> Tensor:
        unlimited = [[-math.inf], [math.inf]]
        joint = np.where(model.jnt_actfrclimited, model.jnt_actfrcrange.T, unlimited)[:, self._joint_ids]
        limits = np.where(model.actuator_forcelimited, model.actuator_forcerange.T, unlimited)
        drive = np.zeros((2, self.dof))
        drive[:, self.driven_ids] = limits[:, list(self._ctrl_adr.values())]
        efforts = np.stack((np.maximum(joint[0], drive[0]), np.minimum(joint[1], drive[1])))
        return torch.tensor(efforts, dtype=torch.float32, device=self._backend.device)

    def _columns(self, addresses: Sequence[int] | Mapping[int, int], joint_ids: Sequence[int]) -> Columns:
        key = tuple(addresses[j] for j in joint_ids)
        if key not in self._column_cache:
            self._column_cache[key] = columns(key, self._backend.device)
        return self._column_cache[key]

    @cached_per_state
    def _link_matrix(self, name: str) -> Tensor:
        if name not in self._links:
            raise KeyError(f"'{self.uid}': {unknown_name('link', name, self._links)}")
        body, model = self._links[name], self._backend.model
        joints: list[int] = []
        for between in bodies_between(model, 0, body) or []:
            first = int(model.body_jntadr[between])
            joints += range(first, first + int(model.body_jntnum[between]))
        if not set(joints) <= set(self._joint_ids):  # the base is free
            return body_pose(self._backend, body)
        chain = self._link_chains.get(name)
        if chain is None:
            chain = self._link_chains[name] = SerialChain(model, joints, body, np.eye(4), self._backend.device)
        ids = [self._joint_ids.index(joint) for joint in joints]
        pose = chain.forward(self._backend.qpos[:, self._columns(self._qpos_adr, ids)])
        shift = self.base.shift
        return pose if shift is None else shift @ pose

    def _read_body_data(self, model: mujoco.MjModel) -> BodyData:
        n, device, inf = self._backend.num_envs, self._backend.device, math.inf
        limits = [tuple(model.jnt_range[j]) if model.jnt_limited[j] else (-inf, inf) for j in self._joint_ids]
        largest = per_joint(self.cfg.drive_pros, "max_velocity", self.joint_names, (), self.uid)
        velocities = [inf if limit is None else limit for limit in largest.values()]
        default = torch.tensor(model.key_qpos[0][self._qpos_adr], dtype=torch.float32, device=device)
        return BodyData(
            qpos_limits=torch.tensor(limits, dtype=torch.float32, device=device).reshape(-1, 2).expand(n, -1, -1),
            qvel_limits=torch.tensor(velocities, dtype=torch.float32, device=device).expand(n, -1),
            qf_limits=self.effort_limits.abs().amax(dim=0).expand(n, -1),
            default_qpos=default.expand(n, -1),
        )


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
        # Of several trees that move freely the largest with drives is the robot; others are loose things in its file.
        joints = [joint for root in self._roots if (joint := int(model.body_jntadr[root])) >= 0]
        free = [] if cfg.fix_base else [joint for joint in joints if model.jnt_type[joint] == _FREE]
        driven = {model.body_rootid[model.jnt_bodyid[joint]] for _, joint in driven_joints(model)}
        size = np.bincount(model.body_rootid)
        free.sort(key=lambda joint: (model.jnt_bodyid[joint] in driven, size[model.jnt_bodyid[joint]]))
        self.is_free = bool(free)
        """Whether the base moves, rather than being fixed to the world."""
        self.root: int = int(model.jnt_bodyid[free[-1]]) if free else self._roots[0]
        """The base's body in the model; of a fixed base with several trees, the first."""
        self._qpos = self._qvel = 0  # its places in the state
        angles = torch.tensor([math.radians(angle) for angle in cfg.init_rot], device=device)
        self.initial: Tensor = torch.cat((torch.tensor(cfg.init_pos, device=device), quat_from_euler(angles)))
        """The initial pose, [7]: position m, quaternion wxyz."""
        if free:  # the scene's place, which may be the file's own
            joint = int(model.body_jntadr[self.root])
            self._qpos, self._qvel = int(model.jnt_qposadr[joint]), int(model.jnt_dofadr[joint])
            self.initial = torch.as_tensor(model.key_qpos[0, self._qpos : self._qpos + 7]).float().to(device)
        self.state_cache: StateCache = StateCache(backend)
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
        return self._backend.qpos[:, self._qpos : self._qpos + 7] if self.is_free else self._row

    @property
    def shift(self) -> Tensor | None:
        """The transform from the configured base to the present one, [N, 4, 4]; None while no fixed base was moved."""
        return self._shift

    def set(self, row: Tensor, env_ids: Tensor) -> None:
        """Move the base to [n, 7]; a free one is at rest afterwards."""
        if self.is_free:
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
        return torch.bmm(self.velocity()[:, None, :3], self.rotation())[:, 0]

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
        if self.is_free:
            return self._backend.qvel[:, self._qvel : self._qvel + 6]
        return torch.zeros(self._backend.num_envs, 6, device=self._backend.device)

    def set_velocity(self, velocity: Tensor, env_ids: Tensor) -> None:
        """Set linear (environment's frame, m/s) and angular velocity (base's frame, rad/s) of a free base, [n, 6]."""
        self._backend.write("qvel", slice(self._qvel, self._qvel + 6), velocity, env_ids)


class JointDrives:
    """Gains and modes of the drives; a reset does not change them.

    A drive with stiffness kp and damping kd pushes with kp (target - q) - kd qd towards a position, with kd (target -
    qd) towards a velocity, or with an effort that is its target, always within its effort limit.
    """

    state_names = ("_gains", "_strength", "_gain", "_pull", "_drag")

    def __init__(
        self, backend: Backend, actuators: Mapping[int, int], dof_addresses: Sequence[int], default_qpos: Tensor
    ) -> None:
        """Read the drives from the compiled model, where all of them are for positions.

        ``actuators`` has the actuator of each driven joint, by the joint's index; ``dof_addresses`` and
        ``default_qpos`` [J] are of all joints.
        """
        self._backend = backend
        self._actuators = dict(actuators)
        self._joints = list(actuators)
        self._places = _as_slice(list(actuators.values()))
        self._dofs = list(dof_addresses)
        for joint, actuator in actuators.items():  # with play, the motor's
            self._dofs[joint] = int(backend.model.jnt_dofadr[backend.model.actuator_trnid[actuator, 0]])
        self._numbers = {joint: int(backend.model.dof_jntid[dof]) for joint, dof in enumerate(self._dofs)}
        self._default_qpos = default_qpos
        self._modes: list[DriveMode] = ["position"] * len(self._dofs)
        stiffness, damping = self._of_joints("actuator_gainprm", 0), -self._of_joints("actuator_biasprm", 2)
        self._gains = self._default_gains = torch.stack((stiffness, damping), dim=1)  # [1 or N, 2, J]
        self.configured_gains: Tensor = self._default_gains[0]
        """Stiffness (N/m or Nm/rad) and damping (N s/m or Nm s/rad) before any :meth:`scale`, [2, J]."""
        self._strength = torch.ones_like(stiffness)  # [1 or N, J] factor of the gains and the highest effort
        # force = gain * target - pull * q - drag * qd; [1 or N, J]
        self._gain, self._pull, self._drag = self._coefficients(self._gains)

    def set_mode(self, mode: DriveMode, joint_ids: Sequence[int]) -> None:
        """Set the mode of some drives; now and after each reset position targets are the initial ones, others 0."""
        if mode != "position" and self._backend.servos is not None:
            raise ConfigError(f"{mode} targets: servos and drives with play (robot.drive_pros) take positions alone")
        for joint in joint_ids:
            self._modes[joint] = mode
        driven = [joint for joint in joint_ids if joint in self._actuators]
        initial = self._default_qpos[driven]
        targets = initial if mode == "position" else torch.zeros_like(initial)
        self._backend.write_initial("ctrl", self._columns(driven), targets)
        self._backend.write("ctrl", self._columns(driven), targets)
        self._write(None)

    @property
    def actuator_ids(self) -> set[int]:
        """The drives' actuators in the model."""
        return set(self._actuators.values())

    def to_positions(self) -> set[int]:
        """Return the joints with a drive towards a position."""
        return {joint for joint in self._actuators if self._modes[joint] == "position"}

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

    def scale(self, stiffness: Tensor, damping: Tensor, joint_ids: Sequence[int], env_ids: Tensor) -> None:
        """Set the gains to factors, [n, J] each, of the configured ones."""
        factors = torch.stack((stiffness, damping), dim=1)
        self._gains = self._changed(self._gains, self._default_gains, factors, joint_ids, env_ids)
        self._write(env_ids)

    def set_strength(self, strength: Tensor, joint_ids: Sequence[int], env_ids: Tensor) -> None:
        """Set factors [n, J], above 0, of gains and effort limits: :meth:`scale` sets others, of the gains alone."""
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
        if [*joint_ids] == [*range(len(self._dofs))]:
            rows = default * factors
        else:
            at = constant(tuple(joint_ids), now.device)
            rows = now[env_ids]
            rows[..., at] = default[..., at] * factors
        return now.index_copy(0, env_ids, rows)  # a new tensor, so that tensors read before do not change

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
