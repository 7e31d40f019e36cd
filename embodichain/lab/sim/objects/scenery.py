"""Markers, lights, and the bodies of a scene in one file. Shapes: N environments, n in ``env_ids`` (None: all)."""

import mujoco
import torch
from torch import Tensor

from embodichain.lab.sim.backend import Backend
from embodichain.lab.sim.cfg import LightCfg, MarkerCfg
from embodichain.lab.sim.math import pose_from_row
from embodichain.lab.sim.model.terrain import FULL_INTENSITY
from embodichain.lab.sim.rendering.shot import Appearance

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


class Marker:
    """Marks a place in every environment, for example a goal."""

    def __init__(self, cfg: MarkerCfg, backend: Backend) -> None:
        self.cfg = cfg
        self.uid = cfg.uid
        self._backend = backend
        row = int(backend.model.body(cfg.uid).mocapid[0])
        self._row = slice(row, row + 1)

    def set_pos(self, pos: Tensor, env_ids: Tensor | None = None) -> None:
        """Move the marker to world positions [n, 3] in environments [n] (None: all)."""
        self._backend.write("mocap_pos", self._row, pos[:, None], env_ids)

    def set_quat(self, quat: Tensor, env_ids: Tensor | None = None) -> None:
        """Turn the marker to world orientations [n, 4] (w, x, y, z) in environments [n] (None: all)."""
        self._backend.write("mocap_quat", self._row, quat[:, None], env_ids)


class Light:
    """One light of every environment."""

    state_names = ("_color", "_intensity")

    def __init__(self, cfg: LightCfg, model: mujoco.MjModel, appearance: Appearance) -> None:
        self.cfg = cfg
        self.uid = cfg.uid
        self._appearance = appearance
        self._row = int(model.light(cfg.uid).id)
        self._color = torch.tensor(cfg.color).repeat(len(appearance.version), 1)
        self._intensity = torch.full((len(appearance.version), 1), cfg.intensity)

    def get_local_pose(self, to_matrix: bool = False) -> Tensor:
        """Return its pose, without a rotation: [N, 7] (x, y, z, 1, 0, 0, 0), or [N, 4, 4]."""
        pos = torch.from_numpy(self._appearance.read("light_pos")[:, self._row].copy()).float()
        if not to_matrix:
            return torch.cat((pos, torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(len(pos), 4)), dim=1)
        pose = torch.eye(4).repeat(len(pos), 1, 1)
        pose[:, :3, 3] = pos
        return pose

    def set_local_pose(self, pose: Tensor, env_ids: Tensor | None = None) -> None:
        """Move it to the position of [n, 3], [n, 7] or [n, 4, 4], m, in environments [n] (None: all)."""
        pos = pose[:, :3, 3] if pose.dim() == 3 else pose[:, :3]
        self._appearance.write("light_pos", self._row, pos, env_ids)

    def set_direction(self, direction: Tensor, env_ids: Tensor | None = None) -> None:
        """Set the direction, [n, 3], of any length but zero."""
        self._appearance.write("light_dir", self._row, torch.nn.functional.normalize(direction, dim=-1), env_ids)

    def set_color(self, color: Tensor, env_ids: Tensor | None = None) -> None:
        """Set red, green and blue, [n, 3], 0 to 1."""
        self._set(self._color, color, env_ids)

    def set_intensity(self, intensity: Tensor, env_ids: Tensor | None = None) -> None:
        """Set the intensity, [n]; 100 is full brightness."""
        self._set(self._intensity, intensity[:, None], env_ids)

    def _set(self, where: Tensor, values: Tensor, env_ids: Tensor | None) -> None:
        which: slice | Tensor = slice(None) if env_ids is None else env_ids.cpu()
        where[which] = values.cpu()
        diffuse = self._color[which] * self._intensity[which] / FULL_INTENSITY
        self._appearance.write("light_diffuse", self._row, diffuse, env_ids)
