"""Rigid bodies and groups of them. Shapes: N environments, n in ``env_ids`` (None: all), M members of a group."""

from collections.abc import Sequence

import mujoco
import torch
from torch import Tensor

from embodichain.lab.sim.backend.base import Backend, StateCache, cached_per_state
from embodichain.lab.sim.cfg import RigidObjectCfg, RigidObjectGroupCfg
from embodichain.lab.sim.math import matrix_from_quat, pose_from_row, row_from_pose
from embodichain.lab.sim.objects.body_physics import BodyPhysics


class RigidObject:
    """A dynamic, kinematic or static body of every environment."""

    def __init__(self, cfg: RigidObjectCfg, backend: Backend, variants: Sequence[mujoco.MjModel] = ()) -> None:
        self.cfg = cfg
        self.uid = cfg.uid
        self._backend = backend
        model = backend.model
        body = model.body(cfg.uid)
        self.physics: BodyPhysics = BodyPhysics(cfg, backend, variants)
        """Its mass, centre of mass, friction and size."""
        self.state_cache = StateCache(backend)
        self._at_rest = torch.zeros(1, 6, device=backend.device)
        self.initial_pos: Tensor = torch.as_tensor(body.pos, dtype=torch.float32, device=backend.device)
        """The configured position, [3], m."""
        self.initial_quat: Tensor = torch.as_tensor(body.quat, dtype=torch.float32, device=backend.device)
        """The configured orientation, [4], (w, x, y, z)."""
        if cfg.body_type == "dynamic":
            joint = model.joint(cfg.uid)
            self._qpos = int(joint.qposadr[0])
            self._qvel = int(joint.dofadr[0])
        elif cfg.body_type == "kinematic":
            self._mocap = int(body.mocapid[0])

    @property
    @cached_per_state
    def pos(self) -> Tensor:
        """World position of the body's frame, [N, 3], m."""
        return self._pose_row()[:, :3]

    @property
    def quat(self) -> Tensor:
        """World orientation, [N, 4], (w, x, y, z)."""
        return self._pose_row()[:, 3:]

    def get_local_pose(self, to_matrix: bool = False) -> Tensor:
        """Return the pose in the environment, [N, 7] (x, y, z, qw, qx, qy, qz) or [N, 4, 4]; do not write into it."""
        return self._pose_matrix() if to_matrix else self._pose_row()

    def get_velocity(self) -> Tensor:
        """Return [N, 6]: linear velocity of the body's origin (world frame, m/s), angular (world frame, rad/s)."""
        if self.cfg.body_type != "dynamic":
            return torch.zeros(self._backend.num_envs, 6, device=self._backend.device)
        velocity = self._backend.qvel[:, self._qvel : self._qvel + 6]
        # MuJoCo's free joint keeps the angular velocity in the body's frame.
        angular = (matrix_from_quat(self.quat) @ velocity[:, 3:, None]).squeeze(-1)
        return torch.cat((velocity[:, :3], angular), dim=1)

    def get_user_ids(self) -> Tensor:
        """Return the body's number in the scene, [N] int32."""
        number = self._backend.model.body(self.uid).id
        return torch.full((self._backend.num_envs,), number, dtype=torch.int32, device=self._backend.device)

    def set_local_pose(self, pose: Tensor, env_ids: Tensor | None = None) -> None:
        """Move the body to [n, 7] (position, quaternion wxyz) or [n, 4, 4]; its velocity stays."""
        if pose.shape[-2:] == (4, 4):
            pose = row_from_pose(pose)
        if self.cfg.body_type == "dynamic":
            self._backend.write("qpos", slice(self._qpos, self._qpos + 7), pose, env_ids)
        elif self.cfg.body_type == "kinematic":
            row = slice(self._mocap, self._mocap + 1)
            self._backend.write("mocap_pos", row, pose[:, None, :3], env_ids)
            self._backend.write("mocap_quat", row, pose[:, None, 3:], env_ids)
        else:
            raise ValueError(f"rigid object '{self.uid}' is static and cannot be moved")

    def clear_dynamics(self, env_ids: Tensor | None = None) -> None:
        """Bring a dynamic body to rest in environments [n] (None: all)."""
        if self.cfg.body_type == "dynamic":
            self._backend.write("qvel", slice(self._qvel, self._qvel + 6), self._at_rest, env_ids)

    def set_velocity(self, velocity: Tensor, env_ids: Tensor | None = None) -> None:
        """Set the velocity, [n, 6]: linear (m/s) and angular (rad/s), world frame."""
        if self.cfg.body_type != "dynamic":
            raise ValueError(f"rigid object '{self.uid}' is {self.cfg.body_type} and has no velocity")
        quat = self.quat if env_ids is None else self.quat[env_ids]
        angular = (matrix_from_quat(quat).transpose(1, 2) @ velocity[:, 3:, None]).squeeze(-1)
        values = torch.cat((velocity[:, :3], angular), dim=1)
        self._backend.write("qvel", slice(self._qvel, self._qvel + 6), values, env_ids)

    def get_state(self, env_ids: Tensor) -> Tensor:
        """Return everything about the body's motion in environments [n]: [n, 13] pose and velocity."""
        return torch.cat((self._pose_row(), self.get_velocity()), dim=1)[env_ids]

    def set_state(self, state: Tensor, env_ids: Tensor) -> None:
        """Set the result of :meth:`get_state`; a static body has no state."""
        if self.cfg.body_type != "static":
            self.set_local_pose(state[:, :7], env_ids)
        if self.cfg.body_type == "dynamic":
            self.set_velocity(state[:, 7:], env_ids)

    @cached_per_state
    def _pose_matrix(self) -> Tensor:
        return pose_from_row(self._pose_row())

    @cached_per_state
    def _pose_row(self) -> Tensor:
        """Return position and quaternion, [N, 7]."""
        if self.cfg.body_type == "dynamic":
            return self._backend.qpos[:, self._qpos : self._qpos + 7]
        if self.cfg.body_type == "kinematic":
            return torch.cat([self._backend.read(f"mocap_{part}")[:, self._mocap] for part in ("pos", "quat")], dim=1)
        return torch.cat((self.initial_pos, self.initial_quat)).expand(self._backend.num_envs, 7)


class RigidObjectGroup:
    """The ``members`` of a group, in the order of the config, of every environment."""

    def __init__(self, cfg: RigidObjectGroupCfg, members: Sequence[RigidObject]) -> None:
        self.cfg = cfg
        self.uid = cfg.uid
        self.members = list(members)

    @property
    def num_objects(self) -> int:
        """M."""
        return len(self.members)

    def get_local_pose(self, to_matrix: bool = False) -> Tensor:
        """Return the members' poses in the environment, [N, M, 7] (x, y, z, qw, qx, qy, qz) or [N, M, 4, 4]."""
        return torch.stack([member.get_local_pose(to_matrix) for member in self.members], dim=1)

    def get_velocity(self) -> Tensor:
        """Return [N, M, 6]: linear (m/s) and angular (rad/s) velocity in the world frame."""
        return torch.stack([member.get_velocity() for member in self.members], dim=1)

    def set_local_pose(self, pose: Tensor, env_ids: Tensor | None = None, obj_ids: Sequence[int] | None = None) -> None:
        """Move m members, of these indices or all, to [n, m, 7] or [n, m, 4, 4]; their velocities stay."""
        chosen = range(len(self.members)) if obj_ids is None else obj_ids
        for i, member in enumerate(chosen):
            self.members[member].set_local_pose(pose[:, i], env_ids)

    def clear_dynamics(self, env_ids: Tensor | None = None) -> None:
        """Bring all members to rest in environments [n] (None: all)."""
        for member in self.members:
            member.clear_dynamics(env_ids)
