"""An articulation that acts. Shapes: N environments, B any batch, J joints of a control part."""

from __future__ import annotations

import mujoco
import numpy as np
import torch
from torch import Tensor

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.cfg import RobotCfg, SolverCfg
from embodichain.lab.sim.kinematics import SerialChain
from embodichain.lab.sim.math import pose_from_pos_quat, quat_from_matrix
from embodichain.lab.sim.objects.articulation import Articulation
from embodichain.utils import ConfigError
from embodichain.utils.errors import unknown_name

__all__ = ["Robot"]

_FLANGE = "tool0"


class Robot(Articulation):
    """An articulation with control parts, each of which may have a tool centre point."""

    cfg: RobotCfg

    def __init__(
        self, cfg: RobotCfg, backend: Backend, joint_names: list[str], control_parts: dict[str, list[str]]
    ) -> None:
        super().__init__(cfg, backend, joint_names)
        self.control_parts = control_parts
        self._part_ids = {part: [joint_names.index(name) for name in names] for part, names in control_parts.items()}
        self._chains: dict[str, SerialChain] = {}

    def get_joint_ids(self, name: str | None = None) -> list[int]:
        """Return the indices of a control part's joints, or of all.

        Raises:
            KeyError: no such control part.
        """
        if name is None:
            return list(range(self.dof))
        if name not in self._part_ids:
            raise KeyError(f"robot '{self.uid}': {unknown_name('control part', name, self._part_ids)}")
        return self._part_ids[name]

    def compute_fk(self, qpos: Tensor, name: str = "arm", to_matrix: bool = True) -> Tensor:
        """Return where a control part's tool centre point is at given joint positions.

        Args:
            qpos: [B, J] rad or m.
            name: the control part.
            to_matrix: 4x4 matrices instead of position and quaternion.

        Returns:
            [B, 4, 4], or [B, 7] (x, y, z, qw, qx, qy, qz), in the environment's frame.
        """
        pose = self._chain(name).forward(qpos)
        return pose if to_matrix else torch.cat((pose[:, :3, 3], quat_from_matrix(pose[:, :3, :3])), dim=1)

    def compute_ik(
        self, pose: Tensor, joint_seed: Tensor | None = None, name: str = "arm", iterations: int = 30
    ) -> tuple[Tensor, Tensor]:
        """Find joint positions that put a control part's tool centre point at a pose.

        Args:
            pose: [N, 4, 4] or [N, 7] (x, y, z, qw, qx, qy, qz) in the environment's frame.
            joint_seed: [N, J] where to start, or None for the present positions.
            name: the control part.
            iterations: of the search; each takes 0.25 ms for 64 poses.

        Returns:
            ``(success [N] bool, qpos [N, J])``: within 1 mm and 0.01 rad, and inside the joint limits.
        """
        if pose.shape[-2:] != (4, 4):
            pose = pose_from_pos_quat(pose[:, :3], pose[:, 3:])
        return self._chain(name).inverse(pose, self.get_qpos(name) if joint_seed is None else joint_seed, iterations)

    def get_eef_pose(self, name: str = "arm") -> Tensor:
        """Return the present pose of a control part's tool centre point, [N, 4, 4].

        Do not write into it: it is kept until the state changes, since observations and rewards both ask for it.
        """
        return self._kept.get(("eef", name), lambda: self.compute_fk(self.get_qpos(name), name))

    def _chain(self, name: str) -> SerialChain:
        """Return the chain of a control part, from the world to the robot's flange.

        Raises:
            ConfigError: there is no flange, or the part's joints do not move it.
        """
        if name not in self._chains:
            model = self._backend.model
            joints = [self._joint_ids[j] for j in self.get_joint_ids(name)]
            tcp = np.array(self.cfg.solver_cfg.get(name, SolverCfg()).tcp)
            self._chains[name] = SerialChain(model, joints, self._end_site(name, joints), tcp, self._backend.device)
        return self._chains[name]

    def _end_site(self, name: str, joints: list[int]) -> int:
        model = self._backend.model
        site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, f"{self.uid}/{_FLANGE}")
        if site < 0:
            raise ConfigError(f"robot '{self.uid}' has no site '{_FLANGE}', which kinematics need as the arm's end")
        on_the_way: list[int] = []
        body = int(model.site_bodyid[site])
        while body:
            first = int(model.body_jntadr[body])
            on_the_way += range(first, first + int(model.body_jntnum[body]))
            body = int(model.body_parentid[body])
        if aside := [self.joint_names[self._joint_ids.index(j)] for j in joints if j not in on_the_way]:
            raise ConfigError(
                f"robot '{self.uid}': control part '{name}' has no tool pose: the way to its flange "
                f"('{_FLANGE}') does not pass {', '.join(aside)}"
            )
        return site
