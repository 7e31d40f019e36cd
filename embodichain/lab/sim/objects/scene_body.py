"""A body of a scene that one file describes. Shapes: N environments."""

from __future__ import annotations

import mujoco
import torch
from torch import Tensor

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.math import pose_from_row

_TRAVELLING = (int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_SLIDE))


class SceneBody:
    """The pose of a body by its name in the file; a camera can follow it.

    Attributes:
        bodies: number in the model of the body and of the bodies below it.
        travels: whether a joint of its own moves it, and does not only turn it.
    """

    def __init__(self, name: str, backend: Backend) -> None:
        self.uid = name
        self._backend = backend
        model = backend.model
        self._body = int(model.body(name).id)
        self.bodies = [self._body]
        for body in range(self._body + 1, model.nbody):  # parents come first
            if model.body_parentid[body] in self.bodies:
                self.bodies.append(body)
        own = model.jnt_type[model.jnt_bodyid == self._body]
        self.travels = any(kind in own for kind in _TRAVELLING)

    def get_user_ids(self) -> Tensor:
        """Return its number in the model, [N] int32."""
        return torch.full((self._backend.num_envs,), self._body, dtype=torch.int32, device=self._backend.device)

    def get_local_pose(self, to_matrix: bool = False) -> Tensor:
        """Return the world pose, [N, 7] (x, y, z, qw, qx, qy, qz) or [N, 4, 4]."""
        pos, quat = (self._backend.read(name)[:, self._body] for name in ("xpos", "xquat"))
        row = torch.cat((pos, quat), dim=1)
        return pose_from_row(row) if to_matrix else row
